"""The state that training goes on from: one file, and the one that was there before it.

`state.npz` holds every variable of the model (seed generators too, which no Keras file format keeps), every variable
of the optimiser (momentum, mean weights, loss scale), the running metrics of the epoch, where the run stood, and what
run it belongs to. Variables are kept in their order: names repeat, and a seed generator has no path.

It is written aside, flushed to disk and renamed; what it takes the place of stays as `previous.npz`, for the day on
which a disk damages the newest. Every array has a checksum, so that damage is seen.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
from pydantic import ValidationError

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import replacing
from pipelines.core.run import Run

# 1 had "progress" in place of a head, and was of the ends of epochs only.
FORMAT = 2
NEWEST, PREVIOUS = "state.npz", "previous.npz"


@dataclass
class Progress:
    """Where a run stands.

    Args:
        step: steps done.
        seconds: wall time spent in them.
        best: highest validation accuracy so far, or of a regression minus the lowest validation loss.
        best_epoch: the epoch, counted from 1, that it was measured after; 0 for none.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = -math.inf
    best_epoch: int = 0


@dataclass(frozen=True)
class TrainingState:
    """What `load` found beside the variables, which are in the model then.

    Args:
        progress: where the run stood.
        metrics: values of the running metrics, which `fit` forgets when it starts an epoch.
        damaged: files that could not be read, each with the reason.
    """

    progress: Progress = field(default_factory=Progress)
    metrics: tuple[np.ndarray, ...] = ()
    damaged: tuple[str, ...] = ()


def origin(run: Run) -> dict[str, Any]:
    """What decides the numbers of a run: only a run with the same may go on from its checkpoints.

    Args:
        run: the run directory.
    """
    record = run.record
    return {
        "configuration": run.config.model_dump(mode="json"),
        "data": record.data.model_dump(mode="json"),
        "backend": record.backend,
        "precision": record.precision.policy,
        "versions": record.versions,
    }


def save(folder: Path, model: keras.Model, progress: Progress, belongs_to: Mapping[str, Any]) -> None:
    """Writes the state, complete or not at all, and keeps the one before it.

    Args:
        folder: of the checkpoints.
        model: a compiled model whose optimiser is built.
        progress: where the run stands.
        belongs_to: from `origin`.
    """
    variables, metrics = _variables(model), model.metrics_variables
    head = {
        "format": FORMAT,
        "belongs_to": belongs_to,
        "progress": asdict(progress),
        "variables": len(variables),
        "metrics": len(metrics),
    }
    names = [*_names("variable", len(variables)), *_names("metric", len(metrics))]
    arrays = {name: variable.numpy() for name, variable in zip(names, [*variables, *metrics], strict=True)}
    with replacing(folder / NEWEST, before=folder / PREVIOUS) as aside:
        np.savez(aside, allow_pickle=False, head=np.array(json.dumps(head)), **arrays)


def load(folder: Path, model: keras.Model, belongs_to: Mapping[str, Any]) -> TrainingState | None:
    """Puts the newest state that can be read into a model. Should it be the one before, that is the newest then.

    Args:
        folder: of the checkpoints.
        model: a compiled model as the one that was saved; its optimiser is built here if it was not.
        belongs_to: from `origin`.

    Returns:
        What there is beside the variables; None if nothing was ever saved.

    Raises:
        UserError: if both files are damaged, or the one that can be read is of another run, version or net.
    """
    damaged = []
    for path in (folder / NEWEST, folder / PREVIOUS):
        try:
            head, values, metrics = _read(path)
        except FileNotFoundError:
            continue
        except Exception as error:
            # zipfile, zlib, numpy and json raise many kinds for the many ways in which a file can be damaged.
            damaged.append(f"{path} is damaged ({type(error).__name__})")
            continue
        _refuse_others(path, head, belongs_to)
        _put(path, values, model)
        if path.name == PREVIOUS:
            # It must not be the next one to be replaced.
            path.replace(folder / NEWEST)
        return TrainingState(Progress(**head["progress"]), metrics, tuple(damaged))
    if damaged:
        raise UserError(
            f"there is no checkpoint to go on from: {', '.join(damaged)}. Restore {folder / NEWEST} from a copy, "
            "or start the run anew in another folder with --run DIR."
        )
    return None


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{index:05d}" for index in range(count)]


def _read(path: Path) -> tuple[dict[str, Any], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    # numpy, given a path, leaves a file that it cannot read open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        if "progress" in arrays.files:
            return {"format": 1}, (), ()
        head = json.loads(str(arrays["head"]))
        # By name: the list of contents, at the end of such a file, has no checksum.
        values = tuple(arrays[name] for name in _names("variable", head["variables"]))
        return head, values, tuple(arrays[name] for name in _names("metric", head["metrics"]))


def _refuse_others(path: Path, head: Mapping[str, Any], belongs_to: Mapping[str, Any]) -> None:
    if head["format"] != FORMAT:
        raise UserError(
            f"the checkpoint {path} has format {head['format']}, and this version of highway-keras reads {FORMAT}. "
            "Go on with the version that wrote it, or start the run anew in another folder with --run DIR."
        )
    kept, here = dict(_flat(_completed(head["belongs_to"]))), dict(_flat(belongs_to))
    recipe = "configuration.recipe"
    if kept.get(recipe) != here.get(recipe):
        raise UserError(
            f"the checkpoint {path} is of recipe {kept.get(recipe)}, and this run of {here.get(recipe)}. "
            "Put the run's own file back."
        )
    for name in sorted({*kept, *here}):
        if kept.get(name) != here.get(name):
            raise UserError(
                f"the checkpoint {path} is of another run of {here.get(recipe)}: its {name} is {kept.get(name)}, "
                f"and this run's is {here.get(name)}. Put the run's own file back."
            )


def _completed(belongs_to: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the fields that configurations have been given since, whose defaults change nothing."""
    try:
        config = Config.model_validate(belongs_to.get("configuration"))
    except ValidationError:
        return belongs_to
    return {**belongs_to, "configuration": config.model_dump(mode="json")}


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _put(path: Path, values: tuple[np.ndarray, ...], model: keras.Model) -> None:
    if not model.optimizer.built:
        # It would have no variables yet, and lose its momentum without a word.
        model.optimizer.build(model.trainable_variables)
    variables = _variables(model)
    if [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
        raise UserError(
            f"the checkpoint {path} belongs to another net: it holds {len(values)} arrays, and this run's net and "
            f"optimiser have {len(variables)}, or their shapes differ. Resume with the code that wrote it."
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _variables(model: keras.Model) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]

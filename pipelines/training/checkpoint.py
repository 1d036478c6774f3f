"""Checkpoints: the training state in one file, and the previous state in another.

`state.npz` holds every variable of the model (including seed generators, which no Keras file format saves) and of the
optimizer (momentum, averaged weights, loss scale), the running metrics of the epoch, the progress of the run, and its
origin. Variables are stored by position, because names repeat and a seed generator has no path.

The file is written to a temporary name, flushed to disk and renamed; the one it replaces is kept as `previous.npz`, in
case the disk damages the newest.
"""

import io
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
from pydantic import ValidationError

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import replacing
from pipelines.core.run import Run
from pipelines.training.checkpoint_file import FORMAT, NEWEST, PREVIOUS, read, write

Interval = int | Literal["auto"]
"""Steps between two saves, or "auto"."""
# Share of the elapsed time that "auto" spends on saving. Training slows down for a moment after each save, which costs
# more than the save itself.
SHARE = 0.002


@dataclass
class Progress:
    """Progress of a run.

    Args:
        step: steps done.
        seconds: wall time spent on these steps.
        best: highest validation accuracy so far; for a regression and for any number of classes, the negative of the
            lowest validation loss, without label smoothing and penalties.
        best_epoch: epoch with that score, counted from 1; 0 for none.
        best_loss: its validation loss, which decides between epochs of the same accuracy. In a run that an earlier
            version started, the first of them stays the best.
        improved_epoch: first epoch with the score `best`, for early stopping; of several processes, the latest.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = -math.inf
    best_epoch: int = 0
    best_loss: float = -math.inf
    improved_epoch: int = 0

    def __post_init__(self) -> None:
        """Completes the progress of a run that an earlier version started."""
        self.improved_epoch = self.improved_epoch or self.best_epoch


@dataclass(frozen=True)
class TrainingState:
    """The state that `load` returns, besides the variables, which go into the model.

    Args:
        progress: progress of the run.
        metrics: values of the running metrics, which `fit` resets when it starts an epoch.
        damaged: unreadable files, each with the reason.
    """

    progress: Progress = field(default_factory=Progress)
    metrics: tuple[np.ndarray, ...] = ()
    damaged: tuple[str, ...] = ()


class SaveTimer:
    """Decides when the state is saved.

    "auto" saves after the first execution, so that a read-only folder is noticed at once. Every later save waits until
    all saves, including itself, take no more than `SHARE` of the elapsed time.

    Args:
        interval: steps between two saves, or "auto". An execution of several steps is not split: the save follows the
            one that reaches a multiple of `interval`.
        step: steps done at the start.
        clock: returns seconds.

    Example:
        timer = SaveTimer("auto", step=0)
        if timer.due(step):
            save(...)
            timer.saved(step, seconds)
    """

    def __init__(self, interval: Interval, step: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.interval = interval
        self.step = step
        self.clock = clock
        self.since = clock()
        self.spent = 0.0
        self.last = 0.0

    def due(self, step: int) -> bool:
        """Returns whether the state after `step` steps must be saved."""
        if self.interval == "auto":
            return self.spent + self.last <= SHARE * (self.clock() - self.since)
        return step // self.interval > self.step // self.interval

    def saved(self, step: int, seconds: float) -> None:
        """Records that the state after `step` steps was saved in `seconds`."""
        self.step = step
        self.last = seconds
        self.spent += seconds


def origin(run: Run) -> dict[str, Any]:
    """Returns everything that determines the numbers of a run; checkpoints of another origin are refused."""
    record = run.record
    return {
        "configuration": run.config.model_dump(mode="json"),
        "data": record.data.model_dump(mode="json"),
        "backend": record.backend,
        "precision": record.precision.policy,
        "versions": record.versions,
    }


def save(folder: Path, model: keras.Model, progress: Progress, belongs_to: Mapping[str, Any]) -> None:
    """Writes the state atomically and keeps the previous one.

    Args:
        folder: folder of the checkpoints.
        model: a compiled model with a built optimizer.
        progress: progress of the run.
        belongs_to: the result of `origin`.
    """
    metrics = [variable.numpy() for variable in model.metrics_variables]
    with replacing(folder / NEWEST, before=folder / PREVIOUS) as aside:
        write(aside, _head(progress, belongs_to), _values(model), metrics)


def load(folder: Path, model: keras.Model, belongs_to: Mapping[str, Any]) -> TrainingState | None:
    """Loads the newest readable state into a model. If that is the previous state, it becomes the newest.

    Args:
        folder: folder of the checkpoints.
        model: a compiled model like the saved one; its optimizer is built if needed.
        belongs_to: the result of `origin`.

    Returns:
        The state, besides the variables; None if nothing was ever saved.

    Raises:
        UserError: both files are damaged, or the readable one belongs to another run, version or net, or to a version
            with other metrics.
    """
    damaged = []
    for path in (folder / NEWEST, folder / PREVIOUS):
        try:
            # If given a path, numpy leaves an unreadable file open.
            with path.open("rb") as file:
                head, values, metrics = read(file)
        except FileNotFoundError:
            continue
        except Exception as error:
            # For a damaged file, zipfile, zlib, numpy and json raise many kinds of errors.
            damaged.append(f"{path} is damaged ({type(error).__name__})")
            continue
        _refuse_others(path, head, belongs_to)
        _refuse_other_metrics(path, metrics, model)
        _put(values, model, f"the checkpoint {path} is of another net", "Resume with the code that wrote it.")
        if path.name == PREVIOUS:
            # Otherwise the next save would drop the only good state.
            path.replace(folder / NEWEST)
        return TrainingState(Progress(**head["progress"]), metrics, tuple(damaged))
    if damaged:
        raise UserError(
            f"there is no checkpoint to resume from: {', '.join(damaged)}. Restore {folder / NEWEST} from a copy, "
            "or start a new run in another folder with --run DIR."
        )
    return None


def metrics_variables(model: keras.Model) -> list[Any]:
    """Returns the variables of the running metrics; on TensorFlow, Keras lists them only after the first step.

    Args:
        model: a compiled model. Its running metrics are changed, which `fit` resets when it starts an epoch.
    """
    nothing = np.zeros((1, *model.output_shape[1:]), "float32")
    model.compute_metrics(None, nothing, nothing)
    return list(model.metrics_variables)


def to_bytes(model: keras.Model, state: TrainingState) -> bytes:
    """Returns the state of a run that starts or resumes, for the other processes that train it; see `from_bytes`.

    Args:
        model: a compiled model with a built optimizer.
        state: progress and running metrics.
    """
    file = io.BytesIO()
    write(file, _head(state.progress, {}), _values(model), state.metrics)
    return file.getvalue()


def from_bytes(data: bytes, model: keras.Model) -> TrainingState:
    """Puts the result of `to_bytes` into a model.

    Args:
        data: the state.
        model: a compiled model like that of the other process.
    """
    head, values, metrics = read(io.BytesIO(data))
    _put(values, model, "process 0 trains another net", "Start all processes with the same code.")
    return TrainingState(Progress(**head["progress"]), metrics)


def _head(progress: Progress, belongs_to: Mapping[str, Any]) -> dict[str, Any]:
    return {"belongs_to": belongs_to, "progress": asdict(progress)}


def _refuse_others(path: Path, head: Mapping[str, Any], belongs_to: Mapping[str, Any]) -> None:
    if head["format"] != FORMAT:
        raise UserError(
            f"the checkpoint {path} has format {head['format']}, and this version of highway-keras reads {FORMAT}. "
            "Resume with the version that wrote it, or start a new run in another folder with --run DIR."
        )
    saved, here = dict(_flat(_completed(head["belongs_to"]))), dict(_flat(belongs_to))
    recipe = "configuration.recipe"
    if saved.get(recipe) != here.get(recipe):
        raise UserError(
            f"the checkpoint {path} is of recipe {saved.get(recipe)}, and this run of {here.get(recipe)}. "
            "Restore the run's own file."
        )
    for name in sorted({*saved, *here}):
        if saved.get(name) != here.get(name):
            raise UserError(
                f"the checkpoint {path} is of another run of {here.get(recipe)}: its {name} is {saved.get(name)}, "
                f"and this run's is {here.get(name)}. Restore the run's own file."
            )


def _refuse_other_metrics(path: Path, metrics: Sequence[np.ndarray], model: keras.Model) -> None:
    known = metrics_variables(model)
    if [value.shape for value in metrics] != [tuple(variable.shape) for variable in known]:
        raise UserError(
            f"the checkpoint {path} was written by a version with other metrics: it has {len(metrics)} running values, "
            f"and this version {len(known)}. Resume with the version that wrote it, or start a new run in another "
            "folder with --run DIR."
        )


def _completed(belongs_to: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds the fields that configurations have gained since the checkpoint; their defaults change nothing."""
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


def _put(values: tuple[np.ndarray, ...], model: keras.Model, fault: str, advice: str) -> None:
    if not model.optimizer.built:
        # An optimizer that is not built has no variables, and would silently lose its momentum.
        model.optimizer.build(model.trainable_variables)
    variables = _variables(model)
    if [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
        raise UserError(
            f"{fault}: its state has {len(values)} arrays, and those of net and optimizer here are {len(variables)}, "
            f"or their shapes differ. {advice}"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _variables(model: keras.Model) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _values(model: keras.Model) -> list[np.ndarray]:
    return [variable.numpy() for variable in _variables(model)]

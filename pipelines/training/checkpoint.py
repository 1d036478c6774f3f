"""The state that training goes on from: one file, replaced as a whole at the end of each epoch.

It holds every variable of the model (seed generators too, which no Keras file format keeps), every variable of the
optimiser (momentum, mean weights, loss scale), and where the run stood. Variables are kept in their order:
names repeat, and a seed generator has no path.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipelines.errors import UserError
from pipelines.files import replacing


@dataclass
class Progress:
    """Where a run stands.

    Args:
        epoch: epochs done.
        seconds: wall time spent in them.
        best: highest validation accuracy so far, or of a regression minus the lowest validation loss.
        best_epoch: the epoch, counted from 1, that it was measured after; 0 for none.
    """

    epoch: int = 0
    seconds: float = 0.0
    best: float = -math.inf
    best_epoch: int = 0


def save(path: Path, model: keras.Model, progress: Progress) -> None:
    """Writes the state, complete or not at all.

    Args:
        path: the file, `.npz`.
        model: a compiled model whose optimiser is built.
        progress: where the run stands.
    """
    arrays = {f"{index:05d}": variable.numpy() for index, variable in enumerate(_variables(model))}
    with replacing(path) as aside:
        np.savez(aside, allow_pickle=False, progress=np.array(json.dumps(asdict(progress))), **arrays)


def load(path: Path, model: keras.Model) -> Progress:
    """Puts a saved state into a model.

    Args:
        path: the file.
        model: a compiled model as the one that was saved; its optimiser is built here if it was not.

    Returns:
        Where the run stands.

    Raises:
        UserError: if the file is damaged, or is not of such a model.
    """
    if not model.optimizer.built:
        # It would have no variables yet, and lose its momentum without a word.
        model.optimizer.build(model.trainable_variables)
    variables = _variables(model)
    try:
        # numpy, given a path, leaves a file that it cannot read open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            progress = Progress(**json.loads(str(arrays["progress"])))
            values = [arrays[f"{index:05d}"] for index in range(len(arrays.files) - 1)]
    except Exception as error:
        # zipfile, zlib, numpy and json raise many kinds for the many ways in which a file can be damaged.
        raise UserError(
            f"the checkpoint {path} is damaged ({type(error).__name__}). Restore it from a copy, "
            "or start the run anew in another folder with --run DIR."
        ) from error
    if [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
        raise UserError(
            f"the checkpoint {path} belongs to another net: it holds {len(values)} arrays, and this run's net and "
            f"optimiser have {len(variables)}, or their shapes differ. Resume with the code that wrote it."
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return progress


def _variables(model: keras.Model) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]

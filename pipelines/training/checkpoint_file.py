"""The file of a checkpoint: a head in JSON, and arrays by position. Imports no framework.

Every array has a checksum, so that damage is noticed.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipelines.core.url import Location, Url

# Format 1 had "progress" in place of a head, and was only written at the end of an epoch.
FORMAT = 2
CHECKPOINTS = "checkpoint"
"""Folder of the checkpoints in a run directory."""
NEWEST, PREVIOUS = "state.npz", "previous.npz"


def write(
    file: Path | BinaryIO, head: Mapping[str, Any], variables: Sequence[np.ndarray], metrics: Sequence[np.ndarray]
) -> None:
    """Writes a checkpoint.

    Args:
        file: the file to write.
        head: progress and origin of the run; the format and the numbers of arrays are added.
        variables: variables of model and optimizer.
        metrics: running metrics of the epoch.
    """
    whole = {"format": FORMAT, **head, "variables": len(variables), "metrics": len(metrics)}
    names = [*_names("variable", len(variables)), *_names("metric", len(metrics))]
    arrays = dict(zip(names, [*variables, *metrics], strict=True))
    np.savez(file, allow_pickle=False, head=np.array(json.dumps(whole)), **arrays)


def read(file: BinaryIO) -> tuple[dict[str, Any], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Returns head, variables and running metrics of a checkpoint; damage raises errors of many types."""
    with np.load(file, allow_pickle=False) as arrays:
        if "progress" in arrays.files:
            return {"format": 1}, (), ()
        head = _head(arrays)
        # Looked up by name, because the directory at the end of the file has no checksum.
        values = tuple(arrays[name] for name in _names("variable", head["variables"]))
        return head, values, tuple(arrays[name] for name in _names("metric", head["metrics"]))


def saved_step(run: Location) -> int:
    """Returns the steps done at the newest checkpoint of a run; 0 without one that can be read.

    Reads the head only.

    Args:
        run: the run directory, which may not exist yet.

    Example:
        saved_step(Path("runs/demo"))  # 120
    """
    for name in (NEWEST, PREVIOUS):
        path = run / CHECKPOINTS / name
        # Missing, replaced at this moment, or damaged in one of many ways.
        with (
            suppress(Exception),
            path.open() if isinstance(path, Url) else path.open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return int(_head(arrays)["progress"]["step"])
    return 0


def _head(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return dict(json.loads(str(arrays["head"])))


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{index:05d}" for index in range(count)]

"""The worker's side: answers each line on its input by training, and waits blocked for the next one."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problem import EPOCH

# Trains that many steps, and gives the loss of each or the mean of each epoch: as numbers, so that all work is done.
# Or a dict with these as "losses", and what else there is to tell.
Train = Callable[[int], Sequence[float] | dict[str, Any]]


def serve(start: Callable[[str], Train], *packages: str) -> None:
    """Makes the net of the command line's task and trains it as the controller asks, until its input ends.

    Args:
        start: takes the task and makes the net.
        packages: whose versions to tell.
    """
    # Frameworks print as they like; answers have a way of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    train = start(sys.argv[1])
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        told = train(steps)
        more = told if isinstance(told, dict) else {"losses": told}
        losses = np.asarray(more["losses"], np.float64)
        if len(losses) == steps and steps % EPOCH == 0:
            losses = losses.reshape(-1, EPOCH).mean(axis=1)
        versions = " ".join(f"{name} {_version(name)}" for name in packages)
        more |= {"losses": losses.tolist(), "peak_bytes": _peak_bytes(), "versions": versions}
        answers.write(json.dumps(more) + "\n")


def _version(package: str) -> str:
    if package != "highway-keras":
        return metadata.version(package)
    # Ours runs from its source: only one of the two environments has it installed.
    from highway_keras.version import __version__

    return __version__


def _peak_bytes() -> int:
    # Not `ru_maxrss`, which a process inherits from the one that started it.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no line VmHWM: peak memory is read on Linux alone")

"""The worker process of a contestant: trains once per line of its input, and blocks until the next one."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problem import EPOCH

# Trains a number of steps. Returns the loss of each step, or the mean of each epoch, as numbers, so that no work is
# pending; or a dict with these under "losses", and further values.
Train = Callable[[int], Sequence[float] | dict[str, Any]]


def serve(start: Callable[[str], Train], *packages: str) -> None:
    """Builds the net of the task on the command line and trains it on request, until the input ends.

    Args:
        start: builds the net of a task.
        packages: packages whose versions to report.
    """
    # Frameworks print to stdout, so answers use a descriptor of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    train = start(sys.argv[1])
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        result = train(steps)
        answer = result if isinstance(result, dict) else {"losses": result}
        losses = np.asarray(answer["losses"], np.float64)
        if len(losses) == steps and steps % EPOCH == 0:
            losses = losses.reshape(-1, EPOCH).mean(axis=1)
        versions = " ".join(f"{name} {_version(name)}" for name in packages)
        answer |= {"losses": losses.tolist(), "peak_bytes": _peak_bytes(), "versions": versions}
        answers.write(json.dumps(answer) + "\n")


def _version(package: str) -> str:
    if package != "highway-keras":
        return metadata.version(package)
    # This project runs from source: only one of the environments has it installed.
    from highway_keras.version import __version__

    return __version__


def _peak_bytes() -> int:
    # Not `ru_maxrss`, which a process inherits from its parent.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no line VmHWM: peak memory can be read on Linux only")

"""The worker's side: answers each line on its input by training, and waits blocked for the next one."""

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np

from benchmarks.problem import EPOCH, Problem

# Trains that many steps, and gives the loss of each or the mean of each epoch: as numbers, so that all work is done.
Train = Callable[[int], Sequence[float]]


def serve(start: Callable[[Problem], Train], *packages: str) -> None:
    """Makes the net of the command line's problem and trains it as the controller asks, until its input ends.

    Args:
        start: makes the net.
        packages: whose versions to tell.
    """
    # Frameworks print as they like; answers have a way of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    train = start(Problem.from_json(sys.argv[1]))
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        losses = np.asarray(train(steps), np.float64)
        if len(losses) == steps and steps % EPOCH == 0:
            losses = losses.reshape(-1, EPOCH).mean(axis=1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        versions = " ".join(f"{name} {metadata.version(name)}" for name in packages)
        answers.write(json.dumps({"losses": losses.tolist(), "peak_bytes": peak, "versions": versions}) + "\n")

"""What a study takes on this machine, from a step that was measured on it; measurements are kept."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.core import environment
from pipelines.core.config import Config, Frozen, Positive
from pipelines.core.files import user_cache, write_text
from pipelines.studies.framework.study import Arm

INDIFFERENT: dict[str, Any] = {
    **dict.fromkeys(("recipe", "seed", "epochs", "schedule", "label_smoothing", "data", "validation", "subset"), True),
    "model": {"transform_bias", "initializer"},
}
"""What of a configuration does not decide how long a step takes; of the data only its name does."""


class Cost(Frozen):
    """How long a net takes on a machine."""

    start: Positive
    """Seconds from the start of a process to the end of its first execution: imports, data, net, program."""
    step: Positive
    """Seconds of each step after it."""

    def of_run(self, arm: Arm) -> float:
        """Seconds that a run takes: its start and its training. Evaluation and figures come on top.

        Args:
            arm: what it trains.
        """
        return self.start + arm.config.epochs * (arm.counts.train // arm.config.batch_size) * self.step


def of_study(costs: Mapping[str, Cost], arms: Mapping[str, Arm], seeds: int) -> float:
    """Seconds that all runs of a study take, one after the other.

    Args:
        costs: of a run of each arm.
        arms: what each trains.
        seeds: runs of each arm.
    """
    return seeds * sum(costs[name].of_run(arm) for name, arm in arms.items())


def file(config: Config) -> Path:
    """Where the measurement of a net on this machine is kept, with these versions and on this backend."""
    cpu, features = environment.cpu()
    decides = {
        "cpu": cpu,
        "features": features,
        "cores": environment.cores(),
        # A machine that is given a GPU takes other times.
        "devices": environment.devices(),
        "versions": environment.versions(),
        "backend": os.environ.get("KERAS_BACKEND"),
        # The folds of a series are configurations of one data set of TFDS.
        "data": config.data.partition("/")[0],
        "config": config.model_dump(mode="json", exclude=INDIFFERENT),
    }
    name = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:24]
    return user_cache() / "steps" / f"{name}.json"


def kept(config: Config) -> Cost | None:
    """What was measured of a net on this machine; None if nothing was, or if it cannot be read."""
    try:
        return Cost.model_validate_json(file(config).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(cost: Cost, path: Path) -> None:
    """Keeps a measurement where `file` says."""
    write_text(path, cost.model_dump_json() + "\n")

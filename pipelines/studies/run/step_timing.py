"""Measures how long a net's training steps take on this machine, in a separate process, and caches the result."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from pipelines.core import environment, frameworks
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import user_cache, write_text
from pipelines.core.frozen import Frozen, Positive
from pipelines.studies.framework.study import Arm
from pipelines.training.processes.task import Task, perform

SECONDS = 2.0
"""Duration of a measurement; it has at least one execution."""
MOST = 200
"""Maximum number of executions in a measurement."""
IRRELEVANT: dict[str, Any] = {
    **dict.fromkeys(("recipe", "seed", "epochs", "schedule", "label_smoothing", "data", "validation", "subset"), True),
    "model": {"transform_bias", "initializer"},
}
"""Fields of a configuration that do not affect the time of a step; of the data, only the data set's name does."""


class Timing(Frozen):
    """Times of a net on a machine."""

    start: Positive
    """Seconds from the start of the process to the end of its first execution: imports, data, net, compilation."""
    step: Positive
    """Seconds per further step."""

    def of_run(self, arm: Arm) -> float:
        """Estimated seconds of a run: its start and training, without evaluation and figures."""
        return self.start + arm.config.epochs * (arm.counts.train // arm.config.batch_size) * self.step


def of_study(timings: Mapping[str, Timing], arms: Mapping[str, Arm], seeds: int) -> float:
    """Estimated seconds of all runs of a study, one after the other.

    Args:
        timings: timings of each arm's net.
        arms: arms of the study.
        seeds: number of runs of each arm.
    """
    return seeds * sum(timings[name].of_run(arm) for name, arm in arms.items())


def file(config: Config) -> Path:
    """Path of the cached timing of a net on this machine, for these versions and this backend."""
    cpu, features = environment.cpu()
    key = {
        "cpu": cpu,
        "features": features,
        "cores": environment.cores(),
        # Adding a GPU changes the timings.
        "devices": environment.devices(),
        "versions": environment.versions(),
        "backend": os.environ.get("KERAS_BACKEND"),
        # The folds of a time series are configurations of one TFDS data set.
        "data": config.data.partition("/")[0],
        "config": config.model_dump(mode="json", exclude=IRRELEVANT),
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return user_cache() / "steps" / f"{name}.json"


def cached(config: Config) -> Timing | None:
    """The cached timing of a net on this machine; None if it is missing or unreadable."""
    try:
        return Timing.model_validate_json(file(config).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(timing: Timing, path: Path) -> None:
    """Caches a timing at a path from `file`."""
    write_text(path, timing.model_dump_json() + "\n")


class TimingTask(Task):
    """Times the steps of a net; `folder` is the file for the result."""

    module: ClassVar[str] = f"{__package__}.step_timing"
    program: ClassVar[str] = "highway reproduce"
    role: Literal["measure"] = "measure"
    config: Config
    """The net and its training."""
    began: float
    """Start of the process, in seconds since 1970."""


def trainer(config: Config, data_dir: Path | None) -> tuple[Callable[[int], float], int]:
    """Makes a function that trains a net as a run does, without writing anything.

    Args:
        config: configuration of the run.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        The function, from a number of executions to the seconds that they take; and the steps of an execution.

    Raises:
        UserError: the data is not prepared, or the net cannot be trained on it.

    Example:
        train, steps = trainer(recipes.get("mnist_dense_10").config, None)
        seconds = train(20) / (20 * steps)
    """
    frameworks.load()
    from pipelines.data import batches, catalog, preprocess, sources
    from pipelines.data.roots import OWN, base_name
    from pipelines.training.assembly import assemble

    # Listing studies must not download anything; our own data sets come with installed packages.
    if base_name(config.data) not in OWN and catalog.find(config.data, data_dir) is None:
        raise UserError(f"the data set '{config.data}' is not prepared: highway data prepare {config.data}")
    ready = assemble(config, data_dir)
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.fit(config.preprocess, examples.images)
    each = ready.model.steps_per_execution

    def train(executions: int) -> float:
        steps = executions * each
        data = batches.of_config(config, examples, fitted, classes=len(ready.data.labels), steps=steps)
        since = time.perf_counter()
        # It returns when the last step has been computed.
        ready.model.fit(data, steps_per_epoch=steps, shuffle=False, verbose=0)
        return time.perf_counter() - since

    return train, each


def measured(config: Config, data_dir: Path | None, began: float) -> Timing:
    """Trains a net for a moment, without writing anything.

    Args:
        config: configuration of the run.
        data_dir: folder of prepared data; None for the TFDS default.
        began: start of this process, in seconds since 1970.

    Raises:
        UserError: the data is not prepared, or the net cannot be trained on it.
    """
    train, steps = trainer(config, data_dir)
    train(1)
    start = time.time() - began
    executions = min(MOST, max(1, math.ceil(SECONDS / train(1))))
    return Timing(start=start, step=train(executions) / (executions * steps))


def _act(task: TimingTask) -> None:
    keep(measured(task.config, task.data_dir, task.began), task.folder)


if __name__ == "__main__":
    perform(TimingTask, _act)

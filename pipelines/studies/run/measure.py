"""A process that measures how long the steps of a net take."""

import math
import time
from pathlib import Path
from typing import ClassVar, Literal

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.studies.run.cost import Cost, keep
from pipelines.training.processes.task import Task, perform

SECONDS = 2.0
"""For which steps are measured, or for one execution if that takes longer."""
MOST = 200
"""Executions that are measured."""


class MeasureTask(Task):
    """A net whose steps are measured; the measurement is kept in the file that `folder` names."""

    module: ClassVar[str] = "pipelines.studies.run.measure"
    program: ClassVar[str] = "highway reproduce"
    role: Literal["measure"] = "measure"
    config: Config
    """The net, and how it is trained."""
    began: float
    """When the process was started, in seconds since 1970."""


def _act(task: MeasureTask) -> None:
    keep(measured(task.config, task.data_dir, task.began), task.folder)


def measured(config: Config, data_dir: Path | None, began: float) -> Cost:
    """Trains a net for a moment, without writing anything.

    Args:
        config: of the run.
        data_dir: where prepared data lies; None for the default of TFDS.
        began: when its process was started, in seconds since 1970.

    Returns:
        What its start and its steps take.

    Raises:
        UserError: the data is not prepared, or cannot be trained on.
    """
    frameworks.load()
    from pipelines.data import batches, catalog, preprocess, sources
    from pipelines.training.prepare import prepare

    # To list what there is must not download anything; our own data sets come with packages.
    if catalog.base_name(config.data) not in catalog.OWN and catalog.found(config.data, data_dir) is None:
        raise UserError(f"the data set '{config.data}' is not prepared: highway data prepare {config.data}")
    ready = prepare(config, data_dir)
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.fit(config.preprocess, examples.images)
    each = ready.model.steps_per_execution

    def train(executions: int) -> float:
        """Seconds of some executions; `fit` ends when the last has computed."""
        steps = executions * each
        data = batches.training(
            examples,
            fitted,
            augment=config.augment,
            batch_size=config.batch_size,
            seed=config.seed,
            steps=steps,
            classes=len(ready.data.labels),
        )
        since = time.perf_counter()
        ready.model.fit(data, steps_per_epoch=steps, shuffle=False, verbose=0)
        return time.perf_counter() - since

    train(1)
    start = time.time() - began
    executions = min(MOST, max(1, math.ceil(SECONDS / train(1))))
    return Cost(start=start, step=train(executions) / (executions * each))


if __name__ == "__main__":
    perform(MeasureTask, _act)

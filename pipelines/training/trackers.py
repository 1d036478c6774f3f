"""Experiment trackers that a run reports to, if asked: MLflow, and Weights & Biases.

Both take their address, project and key from their own environment variables, such as MLFLOW_TRACKING_URI,
MLFLOW_EXPERIMENT_NAME, WANDB_PROJECT and WANDB_API_KEY. A resumed run continues what it has there.
"""

import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pipelines.core.errors import StoppedError, UserError
from pipelines.core.files import write_text
from pipelines.core.frozen import flat
from pipelines.core.run import Run

if TYPE_CHECKING:
    import keras

TrackerName = Literal["mlflow", "wandb"]
# Names of the run in each tracker.
FILE = "trackers.json"
PROJECT = "highway"


@dataclass(frozen=True)
class Tracker:
    """A run in a tracker.

    Args:
        name: its name there.
        log: takes the number of an epoch and its values.
        end: ends it: "finished", "stopped" or "failed".
    """

    name: str
    log: Callable[[int, Mapping[str, float]], object]
    end: Callable[[Literal["finished", "stopped", "failed"]], object]


def check(name: TrackerName | None) -> None:
    """Refuses a tracker that is not installed.

    Raises:
        UserError: its package is missing.
    """
    if name is not None and importlib.util.find_spec(name) is None:
        raise UserError(f"--track {name} needs the package {name}. Install it: pip install 'highway-keras[{name}]'")


@contextmanager
def reporting(run: Run, name: TrackerName | None) -> "Iterator[list[keras.callbacks.Callback]]":
    """Yields the callbacks that report to a tracker until the block ends; none if `name` is None.

    They come after the callbacks that add values to the logs of an epoch.

    Args:
        run: the run; its name in the tracker is kept in its folder.
        name: the tracker.
    """
    if name is None:
        yield []
        return
    import keras

    path = run.path / FILE
    known: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
    tracker = TRACKERS[name](run, known.get(name))
    write_text(path, json.dumps({**known, name: tracker.name}) + "\n")

    def log(epoch: int, logs: Mapping[str, Any]) -> None:
        tracker.log(epoch + 1, {name: float(value) for name, value in logs.items()})

    try:
        yield [keras.callbacks.LambdaCallback(on_epoch_end=log)]
    except (StoppedError, KeyboardInterrupt):
        tracker.end("stopped")
        raise
    except BaseException:
        tracker.end("failed")
        raise
    tracker.end("finished")


def mlflow(run: Run, name: str | None) -> Tracker:
    """Creates a run in MLflow, or continues one.

    Args:
        run: the run.
        name: its name in MLflow; None creates it.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient()
    if name is None:
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = client.get_experiment_by_name(title)
        experiment = client.create_experiment(title) if found is None else found.experiment_id
        name = str(client.create_run(experiment, run_name=run.path.name).info.run_id)
        parameters = [Param(key, str(value)) for key, value in flat(run.config).items()]
        client.log_batch(name, params=[*parameters, Param("parameters", str(run.record.parameters))])
    else:
        client.set_terminated(name, "RUNNING")
    started = name

    def log(epoch: int, values: Mapping[str, float]) -> None:
        now = round(1000 * time.time())
        client.log_batch(started, metrics=[Metric(key, value, now, epoch) for key, value in values.items()])

    states = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
    return Tracker(started, log, lambda state: client.set_terminated(started, states[state]))


def wandb(run: Run, name: str | None) -> Tracker:
    """Creates a run in Weights & Biases, or continues one.

    Args:
        run: the run.
        name: its name in Weights & Biases; None creates it.
    """
    import wandb as package

    begun = package.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.path.name,
        id=name,
        resume="allow",
        config={**flat(run.config), "parameters": run.record.parameters},
        dir=str(run.path),
    )
    return Tracker(
        begun.id,
        lambda epoch, values: begun.log(dict(values), step=epoch),
        lambda state: begun.finish(exit_code=0 if state == "finished" else 1),
    )


TRACKERS: Mapping[TrackerName, Callable[[Run, str | None], Tracker]] = {"mlflow": mlflow, "wandb": wandb}

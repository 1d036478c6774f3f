"""Experiment trackers that a run reports to, if asked: MLflow, and Weights & Biases.

Both take their address, project and key from their own environment variables, such as MLFLOW_TRACKING_URI,
MLFLOW_EXPERIMENT_NAME, WANDB_PROJECT and WANDB_API_KEY. A resumed run continues its tracked run.
"""

import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from pipelines.core.console import say
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.files import write_text
from pipelines.core.frozen import flat
from pipelines.core.run import Run, resuming

if TYPE_CHECKING:
    import keras

TrackerName = Literal["mlflow", "wandb"]
End = Literal["finished", "stopped", "failed"]
# Names of the run in each tracker.
FILE = "trackers.json"
PROJECT = "highway"
# The setting that is usually missing when a tracker cannot be used.
SETTING: Mapping[TrackerName, str] = {
    "mlflow": "MLFLOW_TRACKING_URI to the address of a server",
    "wandb": "WANDB_API_KEY, or WANDB_MODE=offline,",
}


@dataclass(frozen=True)
class Tracker:
    """A run in a tracker.

    Args:
        name: its name there.
        log: takes the number of an epoch and its values.
        end: ends it.
    """

    name: str
    log: Callable[[int, Mapping[str, float]], object]
    end: Callable[[End], object]


def check(name: TrackerName | None) -> None:
    """Refuses a tracker that is not installed.

    Raises:
        UserError: its package is missing.
    """
    if name is not None and importlib.util.find_spec(name) is None:
        raise UserError(f"--track {name} needs the package {name}. Install it: pip install 'highway-keras[{name}]'")


@contextmanager
def reporting(
    run: Run, name: TrackerName | None, console: Console, again: Sequence[str] = ()
) -> "Iterator[list[keras.callbacks.Callback]]":
    """Yields the callbacks that report to a tracker until the block ends; none if `name` is None.

    They come after the callbacks that add values to the logs of an epoch. A tracker that fails later does not end the
    training: the console prints the missing reports.

    Args:
        run: the run; its name in the tracker is kept in its folder.
        name: the tracker.
        console: where to print errors.
        again: further options of the command that resumes the run, for messages.

    Raises:
        UserError: the run cannot be created in the tracker.
    """
    if name is None:
        yield []
        return
    import keras

    path = run.path / FILE
    known: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
    try:
        tracker = TRACKERS[name](run, known.get(name))
    except Exception as error:
        # A client may raise anything: there may be no server, no such project, or no key.
        raise UserError(
            f"{name} cannot be used: {_first_line(error)} The run is kept; resume it without --track, or set "
            f"{SETTING[name]} and resume it: {resuming(run.path, again)}"
        ) from None
    write_text(path, json.dumps({**known, name: tracker.name}) + "\n")

    def tried(lost: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            say(console, f"note: {name} does not have {lost}: {_first_line(error)}")

    def log(epoch: int, logs: Mapping[str, Any]) -> None:
        values = {key: float(value) for key, value in logs.items()}
        tried(f"epoch {epoch + 1}", lambda: tracker.log(epoch + 1, values))

    def end(state: End) -> None:
        tried("the end of the run", lambda: tracker.end(state))

    try:
        yield [keras.callbacks.LambdaCallback(on_epoch_end=log)]
    except (StoppedError, KeyboardInterrupt):
        end("stopped")
        raise
    except BaseException:
        end("failed")
        raise
    end("finished")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


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

    states: dict[End, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
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

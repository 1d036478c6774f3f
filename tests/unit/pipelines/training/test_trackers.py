import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from pipelines.core.errors import StoppedError, UserError
from pipelines.training import trackers
from pipelines.training.trackers import check, reporting
from tests.finished_run import finished, tiny_net

CONSOLE = Console(quiet=True)


@pytest.fixture
def run(tmp_path):
    return finished(tmp_path / "toy", tiny_net())


class Recorder:
    """Records the calls that a tracker receives."""

    def __init__(self):
        self.events = []

    def tracker(self, run, name):
        self.events.append(("begin", name))
        return trackers.Tracker("run-7", lambda *values: self.events.append(values), self.events.append)


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder()
    monkeypatch.setattr(trackers, "TRACKERS", {"mlflow": made.tracker})
    return made


def test_without_a_tracker_nothing_is_written(run):
    before = sorted(run.path.iterdir())
    with reporting(run, None, CONSOLE) as callbacks:
        assert callbacks == []
    assert sorted(run.path.iterdir()) == before


def test_epochs_are_logged_and_a_resumed_run_continues(run, recorder):
    with reporting(run, "mlflow", CONSOLE) as (callback,):
        callback.on_epoch_end(0, {"loss": 2, "val_loss": 3.0})
    with reporting(run, "mlflow", CONSOLE) as (callback,):
        callback.on_epoch_end(1, {"loss": 1.0})
    assert recorder.events == [
        ("begin", None),
        (1, {"loss": 2.0, "val_loss": 3.0}),
        "finished",
        ("begin", "run-7"),
        (2, {"loss": 1.0}),
        "finished",
    ]


@pytest.mark.parametrize(
    ("error", "state"),
    [(StoppedError("", 15), "stopped"), (KeyboardInterrupt(), "stopped"), (ValueError(), "failed")],
)
def test_how_training_ends_is_said(run, recorder, error, state):
    with pytest.raises(type(error)), reporting(run, "mlflow", CONSOLE):
        raise error
    assert recorder.events[-1] == state


def test_a_tracker_that_cannot_be_used_is_named(run, monkeypatch):
    def refuse(run, name):
        raise ValueError("no such project\nmore")

    monkeypatch.setattr(trackers, "TRACKERS", {"mlflow": refuse})
    with (
        pytest.raises(UserError, match=r"mlflow cannot be used: no such project The run is kept.*--data-dir data$"),
        reporting(run, "mlflow", CONSOLE, ["--data-dir", "data"]),
    ):
        pytest.fail("training began")


def test_a_tracker_that_fails_later_does_not_end_training(run, monkeypatch):
    def fail(*values):
        raise ConnectionError("the server is gone")

    console = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(trackers, "TRACKERS", {"mlflow": lambda run, name: trackers.Tracker("7", fail, fail)})
    with reporting(run, "mlflow", console) as (callback,):
        callback.on_epoch_end(4, {"loss": 2.0})
    assert console.file.getvalue().splitlines() == [
        "note: mlflow does not have epoch 5: the server is gone",
        "note: mlflow does not have the end of the run: the server is gone",
    ]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check(None)
    with pytest.raises(
        UserError, match=r"--track wandb needs the package wandb. Install it: pip install '.*\[wandb\]'"
    ):
        check("wandb")


def test_mlflow_is_called_as_its_client_documents(run, monkeypatch):
    calls = []

    class MlflowClient:
        def get_experiment_by_name(self, name):
            assert name == "highway"

        def create_experiment(self, name):
            calls.append(("create_experiment", name))
            return "3"

        def create_run(self, experiment, run_name):
            calls.append(("create_run", experiment, run_name))
            return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

        def log_batch(self, run_id, metrics=(), params=()):
            calls.append(("log_batch", run_id, [*metrics], [*params][:1]))

        def set_terminated(self, run_id, status):
            calls.append(("set_terminated", run_id, status))

    package, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    package.MlflowClient = MlflowClient
    entities.Metric = lambda key, value, time, step: (key, value, step)
    entities.Param = lambda key, value: (key, value)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    with reporting(run, "mlflow", CONSOLE) as (callback,):
        callback.on_epoch_end(0, {"loss": 2.0})
    assert calls == [
        ("create_experiment", "highway"),
        ("create_run", "3", "toy"),
        ("log_batch", "abc", [], [("recipe", "tiny")]),
        ("log_batch", "abc", [("loss", 2.0, 1)], []),
        ("set_terminated", "abc", "FINISHED"),
    ]


def test_wandb_is_called_as_documented(run, monkeypatch):
    calls = []

    def init(**options):
        calls.append(
            (options["project"], options["name"], options["id"], options["resume"], options["config"]["recipe"])
        )
        return SimpleNamespace(
            id="xyz",
            log=lambda values, step: calls.append((values, step)),
            finish=lambda exit_code: calls.append(("finish", exit_code)),
        )

    package = ModuleType("wandb")
    package.init = init
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    with reporting(run, "wandb", CONSOLE) as (callback,):
        callback.on_epoch_end(4, {"loss": 2.0})
    assert calls == [("highway", "toy", None, "allow", "tiny"), ({"loss": 2.0}, 5), ("finish", 0)]

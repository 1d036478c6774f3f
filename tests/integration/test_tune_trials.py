"""Trials of a search on toy data: scores, failures, and resuming."""

import csv
import dataclasses
import io
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import ModelConfig
from pipelines.core.errors import UserError
from pipelines.core.executor import AttemptError, JobError
from pipelines.core.optimizers import SGD
from pipelines.training import checkpoint, metrics_file
from pipelines.training.checkpoint_file import CHECKPOINTS
from pipelines.training.processes.pool import Remote
from pipelines.tuning import search_state, trials
from pipelines.tuning.retrain import retrain, retrain_on_node
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.tuning.search_state import Objective
from pipelines.tuning.trial_task import TrialTask, run
from pipelines.tuning.trials import HopelessError
from pipelines.verbs.cli import main
from tests.executors import Shuffled
from tests.toy_data import ToyData, toy_config
from tests.unit.pipelines.tuning.plans import toy_plan

ACCURACY = Objective("val_accuracy", "max")


CONFIG = toy_config(epochs=4, model=ModelConfig(preset="mnist_dense_50", depth=4, width=12, dropout=0.2))


def train(*arguments, reset_watchdog=lambda: None):
    return trials.train(*arguments, reset_watchdog=reset_watchdog)


@pytest.fixture(scope="module", autouse=True)
def toy():
    with pytest.MonkeyPatch.context() as patch:
        yield ToyData().install(patch)


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """The run directory of an uninterrupted trial, its score, and the number of resets of its watchdog."""
    path, resets = tmp_path_factory.mktemp("trial") / "whole", []
    score = train(CONFIG, path, None, None, ACCURACY, reset_watchdog=lambda: resets.append(1))
    return path, score, len(resets)


def rows(path):
    return [
        {key: value for key, value in row.items() if key != "seconds"}
        for row in metrics_file.read(path / "metrics.csv")
    ]


def test_the_score_is_that_of_the_best_epoch_and_the_test_split_is_not_read(whole, toy):
    path, score, _ = whole
    assert score == max(row["val_accuracy"] for row in rows(path))
    # Another worker finds the trial complete.
    loss = train(CONFIG, path, None, None, Objective("val_loss", "min"))
    assert loss == min(row["val_loss"] for row in rows(path))
    assert "test" not in toy.asked


def test_a_trial_resets_the_watchdog_after_every_execution(whole):
    # At least one in training, one in validation and one at the end of each of four epochs.
    assert whole[2] >= 4 * 3


def test_a_search_needs_validation_examples(monkeypatch):
    assert trials.objective(toy_config(), None) == ACCURACY
    several = dataclasses.replace(ToyData().describe("toy"), multi_label=True)
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: several)
    assert trials.objective(toy_config(), None) == Objective("val_cross_entropy", "min")
    number = dataclasses.replace(several, labels=(), multi_label=False)
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: number)
    for preset, name in (("factor", "val_loss"), ("mynets:penalized", "val_mse")):
        model = ModelConfig(preset=preset)
        assert trials.objective(toy_config(model=model), None) == Objective(name, "min")
    ToyData(validation=False).install(monkeypatch)
    with pytest.raises(UserError, match=r"has no validation examples.*--validation 16"):
        trials.objective(toy_config(), None)
    targets = dataclasses.replace(ToyData(validation=False).describe("toy"), labels=())
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: targets)
    with pytest.raises(UserError, match=r"has no validation examples.*Prepare the data with a split of this name"):
        trials.objective(toy_config(), None)


def test_a_loss_that_is_not_finite_ends_a_trial(tmp_path):
    config = toy_config(
        optimizer=SGD(learning_rate=1e30),
        model=ModelConfig(preset="mnist_dense_50", depth=4, width=12, activation="relu"),
        epochs=3,
    )
    for _ in range(2):  # The second worker reaches the same conclusion from the files.
        with pytest.raises(HopelessError, match="the loss is no longer finite"):
            train(config, tmp_path / "0", None, None, ACCURACY)


@pytest.mark.filterwarnings("ignore:The gate with the initial transform_bias:UserWarning")
@pytest.mark.parametrize(
    ("bias", "precision", "state"),
    [(-100.0, "float32", "shut"), (100.0, "float32", "open"), (-20.0, "mixed_float16", "shut")],
)
def test_dead_gates_end_a_trial_before_it_trains(tmp_path, bias, precision, state):
    model = ModelConfig(preset="mnist_dense_50", depth=4, width=12, transform_bias=bias)
    config = toy_config(model=model, precision=precision)
    with pytest.raises(HopelessError, match=f"dead gates: all . layers are {state} before training"):
        train(config, tmp_path / "0", None, None, ACCURACY)
    assert rows(tmp_path / "0") == []


def test_gates_with_a_low_initial_bias_are_not_dead_in_float32(tmp_path):
    config = toy_config(model=ModelConfig(preset="mnist_dense_50", depth=4, width=12, transform_bias=-20.0), epochs=1)
    assert math.isfinite(train(config, tmp_path / "0", None, None, ACCURACY))


def test_gates_that_die_during_training_end_a_trial(tmp_path):
    callback = trials.StopOnDeadGates(tmp_path)
    callback.least = trials.LEAST_SLOPE["mixed_float16"]
    callback.on_epoch_end(0, {"gate/a": 0.0, "gate/b": 0.3, "loss": 2.3})
    callback.on_epoch_end(0, {"gate/a": 0.9933, "gate/b": 0.9933, "loss": 2.3})
    callback.on_epoch_end(0, {"loss": 0.0})
    with pytest.raises(HopelessError, match="after epoch 2"):
        callback.on_epoch_end(1, {"gate/a": 0.0, "gate/b": 1e-9, "loss": 2.3})


def test_a_plain_net_has_no_gates_to_die(tmp_path):
    config = toy_config(model=ModelConfig(preset="mnist_dense_50_plain", depth=4, width=12), epochs=1)
    assert 0 <= train(config, tmp_path / "0", None, None, ACCURACY) <= 1


@pytest.mark.parametrize(
    "changes", [{"batch_size": 201}, {"model": ModelConfig(preset="mnist_dense_50", activation="rely")}]
)
def test_untrainable_settings_are_a_user_error_and_leave_nothing(tmp_path, changes):
    with pytest.raises(UserError):
        train(toy_config(**changes), tmp_path / "0", None, None, ACCURACY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_training_in_rungs_ends_in_the_same_net_as_training_at_once(tmp_path, whole):
    for epochs in (1, 3, 3, 4):
        score = train(CONFIG, tmp_path / "rungs", None, epochs, ACCURACY)
        assert len(rows(tmp_path / "rungs")) == epochs
        assert score == max(row["val_accuracy"] for row in rows(whole[0])[:epochs])
    assert rows(tmp_path / "rungs") == rows(whole[0])
    nets = [runs.load_model(runs.open_run(path)).get_weights() for path in (tmp_path / "rungs", whole[0])]
    for one, other in zip(*nets, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_trial_resumes_where_its_worker_died(tmp_path, whole, monkeypatch):
    save = checkpoint.save

    def killed(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(CONFIG, tmp_path / "killed", None, None, ACCURACY)
    assert len(rows(tmp_path / "killed")) == 1
    train(CONFIG, tmp_path / "killed", None, None, ACCURACY)
    assert rows(tmp_path / "killed") == rows(whole[0])


def test_a_shed_trial_keeps_its_settings_curves_and_score(tmp_path, whole):
    path = shutil.copytree(whole[0], tmp_path / "0")
    search_state.shed(path)
    search_state.shed(path)
    left = {file.name for file in path.iterdir()}
    assert left == {"config.json", "run.json", "preprocess.npz", "metrics.csv", "tensorboard"}
    assert train(CONFIG, path, None, None, ACCURACY) == whole[1]


@pytest.fixture
def task(tmp_path):
    """A trial of a search in four epochs."""
    plan = toy_plan(epochs=4)
    SEARCH_FILE.keep(plan, tmp_path)
    return TrialTask(plan, {"learning_rate": 0.5}, None, tmp_path / "trials" / "0", None, ACCURACY)


@pytest.mark.parametrize(("epochs", "last"), [(1, False), (4, True), (None, True)])
def test_a_trial_keeps_its_weights_for_the_next_rung(task, monkeypatch, epochs, last):
    def train(config, path, *_, **__):
        assert config == task.plan.configured(task.values)
        (path / CHECKPOINTS).mkdir(parents=True)
        return 0.5

    monkeypatch.setattr(trials, "train", train)
    assert run(dataclasses.replace(task, epochs=epochs)) == 0.5
    assert (task.place / CHECKPOINTS).exists() is not last


def test_an_unexpected_error_fails_only_its_trial_and_is_shown(task, monkeypatch, capfd):
    def broken(*_, **__):
        raise ValueError("no such kernel\nin the driver")

    monkeypatch.setattr(trials, "train", broken)
    with pytest.raises(UserError, match=r"^ValueError: no such kernel$"):
        run(task)
    assert "in broken" in capfd.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "Input/output error"),
        ImportError("libcudnn.so: cannot open shared object file"),
        MemoryError("12 GiB"),
        RuntimeError("no device"),
        tf.errors.ResourceExhaustedError(None, None, "no memory"),
    ],
)
@pytest.mark.parametrize("step", ["train", "objective"])
def test_an_error_of_the_machine_does_not_fail_its_trial(task, monkeypatch, error, step):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(trials, step, broken)
    with pytest.raises(AttemptError, match=f"^{type(error).__name__}: "):
        run(task)


def test_a_full_disk_is_not_the_failure_of_a_trial(task, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trials, "train", full)
    with pytest.raises(OSError, match="No space left"):
        run(task)


def test_a_machine_without_the_folder_or_the_data_runs_no_trial(task, monkeypatch, tmp_path):
    with pytest.raises(JobError, match=r"there is no folder .*/elsewhere, in which all machines write"):
        run(dataclasses.replace(task, place=tmp_path / "elsewhere" / "trials" / "0"))

    def missing(*_):
        raise UserError("there is no data set 'toy'")

    monkeypatch.setattr("pipelines.data.sources.describe", missing)
    with pytest.raises(JobError, match="there is no data set 'toy'"):
        run(task)


def test_winners_are_retrained_with_the_data_of_the_search(tmp_path, monkeypatch):
    (tmp_path / "toy.json").write_text(CONFIG.model_dump_json())
    monkeypatch.setenv("HOME", str(tmp_path))
    members = []

    def refused(given, **_):
        members.extend(given)
        raise UserError("no machine")

    monkeypatch.setattr("pipelines.tuning.retrain.train_all", refused)
    with pytest.raises(UserError, match="no machine"):
        retrain(
            {"toy": tmp_path / "toy.json"}, tmp_path, seeds=2, workers=1, data_dir=Path("~/data"), objective=ACCURACY,
            console=Console(file=io.StringIO()),
        )  # fmt: skip
    assert [member.task.data_dir for member in members] == [tmp_path / "data"] * 2


def test_winners_are_retrained_as_tasks(task, tmp_path):
    folder, recipe = task.place.parents[1], tmp_path / "toy.json"
    recipe.write_text(CONFIG.model_dump_json())
    quiet, remote = Console(file=io.StringIO()), Remote(Shuffled(), retrain_on_node)
    retrain(
        {"toy": recipe}, folder, seeds=2, workers=1, data_dir=None, objective=ACCURACY, console=quiet, remote=remote
    )
    assert sorted(remote.executor.keys) == ["toy-seed-1", "toy-seed-2"]
    with (folder / "retrained.csv").open(newline="") as file:
        found = [(row["seed"], float(row["best_val_accuracy"])) for row in csv.DictReader(file)]
    scores = [runs.open_run(folder / "retrained" / f"toy-seed-{seed}").record.metrics for seed in (1, 2)]
    assert found == [(str(seed), pytest.approx(score["best_val_accuracy"])) for seed, score in enumerate(scores, 1)]


def test_options_of_own_data_are_refused_for_published_data(mnist_5k, tmp_path, capsys):
    words = ["demo", "--group", "writer", "--data-dir", str(mnist_5k), "--to", str(tmp_path / "search")]
    assert main(["tune", *words]) == 2
    assert "mnist_5k is a published data set, without use for --group. Leave that out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

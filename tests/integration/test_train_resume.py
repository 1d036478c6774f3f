"""A run that was stopped goes on as if it had not been."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from pipelines import run as runs
from pipelines.arguments import TrainArguments
from pipelines.config import Augment, ModelConfig, Optimizer, Preprocess, Schedule
from pipelines.errors import UserError
from pipelines.train import train
from pipelines.training import checkpoint, table
from tests.toy_data import ToyData, toy_config

# Keras 3.15 with NumPy 2, when it saves.

# Dropout, augmentation, momentum, weight means and a schedule over the whole run: all that has a state.
CONFIG = toy_config(
    model=ModelConfig(preset="mnist_conv_16", width=4),
    preprocess=Preprocess(mean="channel"),
    augment=Augment(pad=2, mirror=False),
    optimizer=Optimizer(learning_rate=0.05, bias_multiplier=2.0, ema=0.9),
    schedule=Schedule(kind="cosine", warmup_steps=5),
    epochs=4,
    batch_size=50,
)


def begin(path, config=CONFIG):
    train(TrainArguments(config, path, None, None), Console(file=io.StringIO()))


def go_on(path):
    train(TrainArguments(None, None, path, None), Console(file=io.StringIO()))


def begin_and_kill(path, monkeypatch, epoch, before, config=CONFIG):
    """Trains until the checkpoint of an epoch (from 1), and dies before or after it is written."""
    save = checkpoint.save

    def killed(file, model, progress):
        if not before or progress.epoch != epoch:
            save(file, model, progress)
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(path, config)
    assert runs.open_run(path).record.state == "running"
    assert not (path / "model.keras").exists()


def state(path):
    with np.load(path / "checkpoint" / "state.npz") as arrays:
        return {name: arrays[name] for name in arrays.files if name != "progress"}


def rows(path):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in table.read(path / "metrics.csv")]


def same(one, other):
    """Bit for bit: every variable, every number of every epoch, both nets."""
    first, second = state(one), state(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert rows(one) == rows(other)
    for weights in ("final", "best"):
        nets = [runs.load_model(runs.open_run(path), weights).get_weights() for path in (one, other)]
        for left, right in zip(*nets, strict=True):
            np.testing.assert_array_equal(left, right)
    records = [runs.open_run(path).record for path in (one, other)]
    assert records[0].metrics == records[1].metrics
    assert records[0].step == records[1].step


def test_a_killed_run_ends_as_one_that_was_not(monkeypatch, tmp_path):
    ToyData(side=28).install(monkeypatch)
    begin(tmp_path / "whole")
    begin_and_kill(tmp_path / "killed", monkeypatch, 2, False)
    go_on(tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize(("epoch", "before"), [(1, True), (2, True), (3, False)])
def test_wherever_it_was_killed(tmp_path, monkeypatch, epoch, before):
    # In the first epoch; with a row in metrics.csv that no checkpoint holds; with nothing left but to save the net.
    ToyData().install(monkeypatch)
    config = toy_config(epochs=3)
    begin(tmp_path / "whole", config)
    begin_and_kill(tmp_path / "killed", monkeypatch, epoch, before, config)
    go_on(tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


def test_loss_scaling_goes_on_too(tmp_path, monkeypatch):
    config = toy_config(precision="mixed_float16", epochs=3)
    ToyData().install(monkeypatch)
    begin(tmp_path / "whole", config)
    begin_and_kill(tmp_path / "killed", monkeypatch, 1, False, config)
    go_on(tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


def test_many_steps_an_execution_go_on_too(tmp_path, monkeypatch):
    # Batches that are large enough to be divided among devices, where there are several.
    config = toy_config(epochs=3, batch_size=100, steps_per_execution=2)
    ToyData().install(monkeypatch)
    begin(tmp_path / "whole", config)
    begin_and_kill(tmp_path / "killed", monkeypatch, 1, False, config)
    go_on(tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


def test_killed_before_preprocessing_was_kept(tmp_path, monkeypatch):
    ToyData().install(monkeypatch)
    begin_and_kill(tmp_path / "killed", monkeypatch, 1, True, toy_config(epochs=1))
    (tmp_path / "killed" / "preprocess.npz").unlink()
    go_on(tmp_path / "killed")
    assert (tmp_path / "killed" / "preprocess.npz").exists()


@pytest.fixture
def killed(monkeypatch, tmp_path):
    ToyData().install(monkeypatch)
    path = tmp_path / "toy"
    begin_and_kill(path, monkeypatch, 1, False, toy_config())
    return path


def test_time_adds_up(killed):
    before = json.loads(str(np.load(killed / "checkpoint" / "state.npz")["progress"]))["seconds"]
    go_on(killed)
    assert runs.open_run(killed).record.seconds > before


def test_a_damaged_checkpoint_is_named_and_nothing_changed(killed):
    path = killed / "checkpoint" / "state.npz"
    path.write_bytes(path.read_bytes()[:1000])
    before = {file: file.read_bytes() for file in killed.rglob("*") if file.is_file()}
    with pytest.raises(UserError, match=r"checkpoint .*state\.npz is damaged"):
        go_on(killed)
    assert {file: file.read_bytes() for file in killed.rglob("*") if file.is_file()} == before


def test_other_data_is_refused(killed, monkeypatch):
    ToyData(validation=False).install(monkeypatch)
    with pytest.raises(UserError, match="the data is not what"):
        go_on(killed)


def test_another_backend_is_refused(killed):
    runs.open_run(killed).update(backend="other")
    with pytest.raises(UserError, match="KERAS_BACKEND=other"):
        go_on(killed)


def test_a_run_in_use_is_refused(killed):
    with runs.locked(runs.open_run(killed)), pytest.raises(UserError, match="another process is training"):
        go_on(killed)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run directory"):
        go_on(tmp_path / "none")

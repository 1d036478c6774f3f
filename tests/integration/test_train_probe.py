"""What is measured of a net on its way changes no bit of it, and is the same however often the run was killed."""

import io

import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import SGD
from pipelines.training import checkpoint, table
from pipelines.training.probe import WATCHED, Probe
from pipelines.training.train import resume, train
from tests.killed_run import differences
from tests.toy_data import ToyData, toy_config

# Epochs of ten steps, in executions of two.
CONFIG = toy_config(epochs=3, steps_per_execution=2, optimizer=SGD(learning_rate=0.1, momentum=0.9))
STEPS = (0, 3, 10, 13, 24, 30)
IMAGES = np.random.default_rng(0).normal(size=(16, 28, 28, 1)).astype("float32")


class Killed(BaseException):
    """As sudden as a signal."""


def logits(net):
    """A number that every weight decides; twice, as running a net must not change what it trains on."""
    first, second = (float(np.abs(net.predict(IMAGES, verbose=0)).sum()) for _ in range(2))
    assert first == second
    return {"size": first}


def watched(run, data_dir):
    assert run.record.steps_per_epoch == 10
    assert data_dir is None
    return Probe(STEPS, logits)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    return ToyData(side=28).install(monkeypatch)


def begin(path, *, config=CONFIG, probe=watched):
    train(config, path, interval=2, console=Console(file=io.StringIO()), probe=probe)
    return path


def rows(path):
    return {row["step"]: row["size"] for row in table.read(path / WATCHED)}


def test_a_row_is_of_the_weights_of_its_step_and_training_is_as_without(tmp_path):
    path = begin(tmp_path / "watched")
    without = begin(tmp_path / "without", probe=None)
    assert differences(without, path) == []
    assert not (without / WATCHED).exists()
    # Steps 3 and 13 lie inside of an execution.
    assert list(rows(path)) == [0, 4, 10, 14, 24, 30]
    assert len(set(rows(path).values())) == 6
    shorter = begin(tmp_path / "shorter", config=CONFIG.model_copy(update={"epochs": 1}), probe=None)
    for ended, step in ((shorter, 10), (path, 30)):
        net = runs.load_model(runs.open_run(ended))
        assert rows(path)[step] == pytest.approx(logits(net)["size"], rel=1e-6)


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (2, True),  # nothing was ever saved, but the row before the first step is there
        (4, True),  # a row that no checkpoint holds
        (4, False),
        (16, False),
        (30, True),
        (30, False),  # nothing left but to keep the net
    ],
)
def test_wherever_it_was_killed(tmp_path, monkeypatch, step, before):
    whole, path = begin(tmp_path / "whole"), tmp_path / "killed"
    save = checkpoint.save

    def saved(folder, model, progress, belongs_to):
        if before and progress.step == step:
            raise Killed
        save(folder, model, progress, belongs_to)
        if progress.step == step:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", saved)
        with pytest.raises(Killed):
            begin(path)
    resume(path, interval=2, console=Console(file=io.StringIO()), probe=watched)
    assert differences(whole, path) == []
    assert (path / WATCHED).read_bytes() == (whole / WATCHED).read_bytes()


def test_a_mean_of_the_weights_does_not_get_into_what_is_measured(tmp_path):
    averaged = CONFIG.model_copy(update={"optimizer": SGD(learning_rate=0.1, momentum=0.9, ema=0.9)})
    assert rows(begin(tmp_path / "averaged", config=averaged)) == rows(begin(tmp_path / "plain"))

"""Probes do not change training, and give the same rows however often a run is interrupted."""

import io
import shutil

import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.optimizers import SGD
from pipelines.training import figures, metrics_file
from pipelines.training.probe import PROBE_FILE, Probe
from pipelines.training.train import resume, train
from tests.interrupted import at, copied
from tests.killed_run import differences
from tests.toy_data import ToyData, toy_config

# Epochs of ten steps, in executions of two.
CONFIG = toy_config(epochs=3, steps_per_execution=2, optimizer=SGD(learning_rate=0.1, momentum=0.9))
STEPS = (0, 3, 10, 13, 24, 30)
IMAGES = np.random.default_rng(0).normal(size=(16, 28, 28, 1)).astype("float32")
MOMENTS = (
    pytest.param(2, True, marks=pytest.mark.slow),  # no checkpoint, but a row from before the first step
    (4, True),  # a row that is in no checkpoint
    pytest.param(16, False, marks=pytest.mark.slow),
    pytest.param(30, True, marks=pytest.mark.slow),
    pytest.param(30, False, marks=pytest.mark.slow),  # only the net remains to be saved
)


def logits(net):
    """Returns a number that depends on every weight; computes it twice, as running a net must not change its state."""
    first, second = (float(np.abs(net.predict(IMAGES, verbose=0)).sum()) for _ in range(2))
    assert first == second
    return {"size": first}


def probe(run, data_dir):
    assert run.record.steps_per_epoch == 10
    assert data_dir is None
    return Probe(STEPS, logits)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    # Figures take a quarter of the time.
    monkeypatch.setattr(figures, "draw_training", lambda run: None)
    return ToyData(side=28).install(monkeypatch)


def train_probed(path, *, config=CONFIG, probe=probe):
    train(config, path, interval=2, console=Console(file=io.StringIO()), probe=probe)
    return path


@pytest.fixture
def probed(shared):
    """The folder of a probed run (`whole`) and copies of it at `MOMENTS`, which tests must not change."""

    def make(folder):
        moments = {tuple(getattr(moment, "values", moment)) for moment in MOMENTS}
        with copied(folder / "whole", folder, moments):
            train_probed(folder / "whole")

    return shared("probed", make)


def rows(path):
    return {row["step"]: row["size"] for row in metrics_file.read(path / PROBE_FILE)}


def test_a_row_has_the_weights_of_its_step_and_training_does_not_change(probed, tmp_path):
    path = probed / "whole"
    without = train_probed(tmp_path / "without", probe=None)
    assert differences(without, path) == []
    assert not (without / PROBE_FILE).exists()
    # Steps 3 and 13 are inside an execution.
    assert list(rows(path)) == [0, 4, 10, 14, 24, 30]
    assert len(set(rows(path).values())) == 6
    assert rows(path)[30] == pytest.approx(logits(runs.load_model(runs.open_run(path)))["size"], rel=1e-6)


@pytest.mark.slow
def test_a_row_at_the_end_of_an_epoch_has_the_weights_of_a_run_that_ends_there(probed, tmp_path):
    shorter = train_probed(tmp_path / "shorter", config=CONFIG.model_copy(update={"epochs": 1}), probe=None)
    net = runs.load_model(runs.open_run(shorter))
    assert rows(probed / "whole")[10] == pytest.approx(logits(net)["size"], rel=1e-6)


@pytest.mark.parametrize(("step", "before"), MOMENTS)
def test_a_run_killed_at_any_step_resumes_with_the_same_rows(probed, tmp_path, step, before):
    whole, path = probed / "whole", tmp_path / "killed"
    shutil.copytree(at(probed, step, before), path)
    resume(path, interval=2, console=Console(file=io.StringIO()), probe=probe)
    assert differences(whole, path) == []
    assert (path / PROBE_FILE).read_bytes() == (whole / PROBE_FILE).read_bytes()


@pytest.mark.slow
def test_the_moving_average_of_the_weights_is_not_measured(probed, tmp_path):
    averaged = CONFIG.model_copy(update={"optimizer": SGD(learning_rate=0.1, momentum=0.9, ema=0.9)})
    assert rows(train_probed(tmp_path / "averaged", config=averaged)) == rows(probed / "whole")

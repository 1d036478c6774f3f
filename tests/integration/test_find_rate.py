"""`highway train --find-rate`: losses at rising learning rates, and a suggestion."""

import io
import math
import types

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from pipelines.core.config import StageConfig
from pipelines.core.optimizers import Adam
from pipelines.training import rate_finder
from pipelines.training.rate_finder import HIGHEST, LOWEST, RateSweep, sweep
from pipelines.verbs import train
from pipelines.verbs.cli import main
from tests.toy_data import CONVOLUTIONS, ToyData, toy_config


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    ToyData(side=28).install(monkeypatch)


def test_the_loss_starts_at_that_of_guessing_and_falls():
    found = sweep(toy_config(optimizer=Adam()), None, Console(file=io.StringIO()), steps=60)
    assert len(found.rates) == len(found.losses) <= 60
    assert found.rates[0] == pytest.approx(LOWEST)
    np.testing.assert_allclose(np.diff(np.log(found.rates)), np.log(HIGHEST / LOWEST) / 59, rtol=1e-6)
    # At first, rates are too small to change anything.
    assert found.losses[0] == pytest.approx(np.log(4), abs=0.5)
    assert found.losses.min() < 0.9 * found.losses[0]
    assert LOWEST < found.suggested <= HIGHEST / 10


def test_a_sweep_starts_from_a_whitened_kernel_and_takes_full_images(monkeypatch):
    whitened = []
    monkeypatch.setattr(rate_finder, "whiten", lambda net, *_: whitened.append(net.input_shape))
    stages = (*CONVOLUTIONS.stages, StageConfig(filters=3, pool="average"))
    model = CONVOLUTIONS.model_copy(update={"stages": stages, "whitened": True})
    assert len(sweep(toy_config(model=model, small_side=20), None, Console(file=io.StringIO()), steps=3).rates) == 3
    assert whitened == [(None, 28, 28, 1)]


@pytest.mark.parametrize("last", [50.0, math.nan])
def test_a_sweep_ends_when_the_loss_diverges(last):
    with Progress(console=Console(file=io.StringIO())) as progress:
        recorder = rate_finder.Recorder(progress, 10)
        recorder.set_model(types.SimpleNamespace(stop_training=False))
        # In the logs, the loss is the mean over all steps so far.
        for step, loss in enumerate([2.0, 1.5, 1.0]):
            recorder.on_train_batch_end(step, {"loss": loss})
            assert not recorder.model.stop_training
        recorder.on_train_batch_end(3, {"loss": last})
        assert recorder.model.stop_training
    np.testing.assert_allclose(recorder.smoothed[:2], [2.0, (0.9 * 0.2 + 0.1 * 1.0) / 0.19])


def test_a_tenth_of_the_rate_with_the_lowest_loss_is_suggested():
    found = RateSweep(np.array([0.01, 0.1234, 1.0]), np.array([2.0, 1.0, 3.0]))
    assert found.suggested == 0.012


@pytest.mark.slow
def test_a_sweep_writes_a_figure_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rate_finder, "STEPS", 30)
    words = ["train", "demo", "--data", "toy", "--batch-size", "20", "--model.width", "4", "--find-rate"]
    assert main([*words, "rates.png"]) == 0
    assert "suggested: --optimizer.learning-rate " in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["rates.png"]
    assert main([*words, "rates.txt"]) == 2
    assert "--find-rate must end in .png, .pdf or .svg" in capsys.readouterr().err


def test_the_option_is_parsed():
    assert train.parse_train(["demo", "--find-rate", "rates.png"]).find_rate.name == "rates.png"
    assert train.parse_train(["demo"]).find_rate is None

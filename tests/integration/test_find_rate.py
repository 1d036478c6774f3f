"""`highway train --find-rate`: losses at rising learning rates, and a suggestion."""

import io

import numpy as np
import pytest
from rich.console import Console

from pipelines.core.optimizers import Adam
from pipelines.training import rate_finder
from pipelines.training.rate_finder import DIVERGED, HIGHEST, LOWEST, RateSweep, sweep
from pipelines.verbs import train
from pipelines.verbs.cli import main
from tests.toy_data import ToyData, toy_config


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    ToyData(side=28).install(monkeypatch)


def test_the_loss_starts_at_that_of_guessing_falls_and_diverges():
    found = sweep(toy_config(optimizer=Adam()), None, Console(file=io.StringIO()), steps=60)
    assert len(found.rates) == len(found.losses) <= 60
    assert found.rates[0] == pytest.approx(LOWEST)
    np.testing.assert_allclose(np.diff(np.log(found.rates)), np.log(HIGHEST / LOWEST) / 59, rtol=1e-6)
    # At first, rates are too small to change anything.
    assert found.losses[0] == pytest.approx(np.log(4), abs=0.5)
    assert found.losses.min() < 0.9 * found.losses[0]
    assert found.losses[-1] > DIVERGED * found.losses.min()
    assert found.losses[-2] <= DIVERGED * found.losses[:-1].min()
    assert LOWEST < found.suggested < HIGHEST / 10


def test_a_tenth_of_the_rate_with_the_lowest_loss_is_suggested():
    found = RateSweep(np.array([0.01, 0.1234, 1.0]), np.array([2.0, 1.0, 3.0]))
    assert found.suggested == 0.012


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

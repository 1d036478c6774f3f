"""`highway evaluate` on trained runs: what is measured, written, and refused."""

import io
import json

import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import Preprocess
from pipelines.data import preprocess
from pipelines.data.sources import DataInfo
from pipelines.training.evaluate import evaluate
from pipelines.training.train import train
from pipelines.verbs.cli import main
from tests.toy_data import ToyData, toy_config

# Keras 3.15 with NumPy 2, when it saves.


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A trained run that tests may evaluate."""
    path = tmp_path_factory.mktemp("runs") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        ToyData().install(patch)
        config = toy_config(epochs=3, preprocess=Preprocess(mean="channel"))
        train(config, path, console=Console(file=io.StringIO()))
    return path


@pytest.fixture
def toy(monkeypatch):
    return ToyData().install(monkeypatch)


def refused(capsys, *words):
    assert main(["evaluate", *map(str, words)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("highway evaluate: error: ")
    return said


def test_the_test_split_is_measured_and_reported(once, toy, capsys):
    assert main(["evaluate", str(once)]) == 0
    assert "evaluation.json" in capsys.readouterr().out
    assert toy.asked == ["test"]
    found = json.loads((once / "evaluation.json").read_text())
    run = runs.open_run(once)
    examples = toy.load("toy", "test")
    images = preprocess.apply(preprocess.load(once / "preprocess.npz"), examples.images)
    right = runs.load_model(run).predict(images, verbose=0).argmax(1) == examples.labels
    assert (found["weights"], found["data"], found["split"]) == ("final", "toy 1.0.0", "test")
    assert (found["count"], found["correct"]) == (60, right.sum())
    assert found["interval"][0] < found["accuracy"] == pytest.approx(right.mean())
    assert (once / "figures" / "confusion.png").read_bytes().startswith(b"\x89PNG")
    report = (once / "report.md").read_text()
    assert f"**{right.mean():.2%}**" in report
    for figure in ("learning_curve", "gates", "confusion"):
        assert f"](figures/{figure}.png)" in report
    assert run.record.command in report


def test_best_weights_are_measured_if_asked_for(once, toy):
    assert evaluate(once, "best").weights == "best"
    assert "best weights" in (once / "report.md").read_text()


def test_other_data_is_refused(once, monkeypatch, capsys):
    ToyData().install(monkeypatch)
    other = DataInfo("toy", "2.0.0", (8, 8, 1), ("nw", "ne", "sw", "se"), {"train": 1, "validation": 1, "test": 1})
    monkeypatch.setattr("pipelines.data.sources.describe", lambda *_: other)
    assert "and the data found is" in refused(capsys, once)


def test_what_cannot_be_evaluated_says_why(once, toy, tmp_path, capsys):
    assert "there is no run directory" in refused(capsys, tmp_path / "none")
    assert "no run directory" in refused(capsys, tmp_path)
    opened = runs.open_run(once)
    unfinished = runs.create(tmp_path / "unfinished", opened.config, opened.record)
    unfinished.update(state="running")
    assert "is unfinished" in refused(capsys, tmp_path / "unfinished")
    unfinished.update(state="finished")
    (tmp_path / "unfinished" / "model.keras").write_bytes((once / "model.keras").read_bytes()[:5000])
    assert "model.keras is damaged" in refused(capsys, tmp_path / "unfinished")
    (tmp_path / "unfinished" / "model.keras").write_bytes((once / "model.keras").read_bytes())
    assert "preprocess.npz is missing" in refused(capsys, tmp_path / "unfinished")
    assert not (tmp_path / "unfinished" / "evaluation.json").exists()
    assert refused(capsys, once, "--weights", "first")

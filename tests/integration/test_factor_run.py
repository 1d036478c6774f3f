"""The factor recipe on the real factors: a regression through every verb."""

import io
import json

import keras
import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.data import preprocess
from pipelines.data.catalog import prepare
from pipelines.data.sources import load
from pipelines.studies.papers.factors.walk_forward import WEIGHTS, measured
from pipelines.training import checkpoint, table
from pipelines.training.evaluate import evaluate
from pipelines.training.train import train
from pipelines.verbs.cli import main
from pipelines.verbs.train import parse_train


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("data_sets")
    prepare("fama_french", root)
    return root


def trained(path, data_dir, *words):
    train(parse_train(list(words)).config, path, data_dir=data_dir, console=Console(file=io.StringIO()))
    return runs.open_run(path)


@pytest.fixture(scope="module")
def once(data_dir, tmp_path_factory):
    # A rate at which the last epochs are not the best.
    path = tmp_path_factory.mktemp("runs") / "factor"
    return trained(path, data_dir, "factor", "--epochs", "6", "--optimizer.learning-rate", "0.005")


def test_a_number_is_learned_by_the_mean_squared_error(once, data_dir):
    assert once.record.state == "finished"
    assert (once.record.data.shape, once.record.data.labels) == ((4,), ())
    assert len(once.record.gates) == 4
    rows = table.read(once.path / "metrics.csv")
    assert list(rows[0])[:8] == ["epoch", "step", "seconds", "learning_rate", "loss", "mae", "val_loss", "val_mae"]
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(once.path / "preprocess.npz"), examples.images)
    errors = runs.load_model(once).predict(inputs, verbose=0) - examples.labels
    assert np.square(errors).mean() == pytest.approx(rows[-1]["val_loss"], rel=1e-5)
    assert np.abs(errors).mean() == pytest.approx(rows[-1]["val_mae"], rel=1e-5)


def test_preprocessing_has_seen_the_training_months_alone(once, data_dir):
    mean = preprocess.load(once.path / "preprocess.npz").mean
    train_months = load("fama_french", "train", data_dir).images
    np.testing.assert_allclose(mean, 0.2 * train_months.astype(float).mean(axis=0), rtol=1e-5)


def test_the_best_epoch_has_the_lowest_validation_loss(once, data_dir):
    losses = [row["val_loss"] for row in table.read(once.path / "metrics.csv")]
    best = int(np.argmin(losses))
    assert best not in {0, len(losses) - 1}
    assert once.record.metrics["best_epoch"] == best + 1
    assert once.record.metrics["best_val_loss"] == pytest.approx(losses[best], rel=1e-8)
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(once.path / "preprocess.npz"), examples.images)
    errors = runs.load_model(once, "best").predict(inputs, verbose=0) - examples.labels
    assert np.square(errors).mean() == pytest.approx(losses[best], rel=1e-5)


def test_it_is_evaluated_and_reported(once, data_dir, capsys):
    assert main(["evaluate", str(once.path), "--data-dir", str(data_dir)]) == 0
    said = capsys.readouterr().out
    assert "R^2" in said
    assert "highway export" not in said
    found = json.loads((once.path / "evaluation.json").read_text())
    targets = {name: load("fama_french", name, data_dir).labels.astype(float) for name in ("train", "test")}
    inputs = preprocess.apply(
        preprocess.load(once.path / "preprocess.npz"), load("fama_french", "test", data_dir).images
    )
    errors = runs.load_model(once).predict(inputs, verbose=0) - targets["test"]
    mean = targets["train"].mean()
    assert found["count"] == 167
    assert found["training_mean"] == pytest.approx(mean)
    assert found["r2"] == pytest.approx(1 - np.square(errors).sum() / np.square(targets["test"] - mean).sum())
    report = (once.path / "report.md").read_text()
    assert f"**{found['r2']:.4f}**" in report
    assert "validation, best epoch" in report
    for figure in ("learning_curve", "gates", "forecast"):
        assert (once.path / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert f"](figures/{figure}.png)" in report
    assert not (once.path / "figures" / "confusion.png").exists()


def test_it_cannot_be_exported(once, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(once.path), "--to", str(tmp_path / "model")]) == 2
    assert "Only image classifiers can be exported" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_to_the_same_end(data_dir, tmp_path, monkeypatch):
    words = ("factor", "--epochs", "2", "--model.width", "16")
    whole = trained(tmp_path / "whole", data_dir, *words)
    save = checkpoint.save

    def killed(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "killed", data_dir, *words)
    assert main(["train", "--resume", str(tmp_path / "killed"), "--data-dir", str(data_dir)]) == 0
    again = runs.open_run(tmp_path / "killed")
    assert again.record.metrics == whole.record.metrics
    for one, other in zip(*(runs.load_model(run).get_weights() for run in (whole, again)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_fold_is_measured_on_the_months_it_was_tested_on(data_dir, tmp_path):
    words = ("factor", "--data", "fama_french/1940s", "--epochs", "2", "--model.width", "16")
    run = trained(tmp_path / "fold", data_dir, *words)
    evaluated = evaluate(run.path, WEIGHTS, data_dir)
    found = measured(run, data_dir)
    targets = load("fama_french/1940s", "test", data_dir).labels[:, 0]
    assert np.sqrt(np.square(found["forecast"] - targets).mean()) == pytest.approx(evaluated.rmse, rel=1e-5)
    assert found["gates"].shape == found["untrained"].shape == (281, 4)
    # What was kept in training, of the months held back: 129 to 161.
    rows = table.read(run.path / "metrics.csv")
    best = int(run.record.metrics["best_epoch"]) - 1
    for layer, (name, before) in enumerate(run.record.gates.items()):
        assert found["untrained"][129:161, layer].mean() == pytest.approx(before, rel=1e-5)
        assert found["gates"][129:161, layer].mean() == pytest.approx(rows[best][f"gate/{name}"], rel=1e-5)


def test_the_plain_twin_trains(data_dir, tmp_path):
    run = trained(tmp_path / "plain", data_dir, "factor_plain", "--epochs", "1", "--data", "fama_french/1950s")
    assert run.record.gates == {}
    assert set(measured(run, data_dir)) == {"forecast"}
    assert run.record.metrics["mae"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["factor", "--augment.pad", "2", "--augment.mirror"], "for --augment.pad, --augment.mirror."),
        (["factor", "--preprocess.contrast", "1"], "for --preprocess.contrast."),
        (["factor", "--label-smoothing", "0.1"], "for --label-smoothing."),
        (["mnist_conv_16", "--data", "fama_french"], "cannot be built for fama_french (inputs of 4, outputs: 1)"),
    ],
)
def test_what_belongs_to_images_is_refused_before_anything_is_written(words, told, data_dir, tmp_path, capsys):
    keras.backend.clear_session()
    assert main(["train", *words, "--run", str(tmp_path / "run"), "--data-dir", str(data_dir)]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_it_is_analysed_by_its_loss_alone(once, data_dir, tmp_path):
    words = ["analyze", str(once.path), "--data-dir", str(data_dir), "--to", str(tmp_path / "analysis")]
    assert main(words) == 0
    with np.load(tmp_path / "analysis" / "arrays.npz") as arrays:
        examples = load("fama_french", "train", data_dir)
        inputs = preprocess.apply(preprocess.load(once.path / "preprocess.npz"), examples.images)
        errors = runs.load_model(once).predict(inputs, verbose=0) - examples.labels
        assert arrays["lesion_intact_loss"] == pytest.approx(np.square(errors).mean(), rel=1e-5)
        assert arrays["lesion_loss"].shape == (4,)
        assert arrays["class_means"].shape == (1, arrays["mean"].size)
        assert not {"lesion_accuracy", "route_classes"} & set(arrays)
    assert not (tmp_path / "analysis" / "figures" / "classes.png").exists()
    assert "](figures/lesions.png)" in (tmp_path / "analysis" / "analysis.md").read_text()

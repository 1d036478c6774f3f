"""The factor recipe on the published factors: a regression through every verb."""

import io
import json
import shutil

import keras
import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.data import preprocess
from pipelines.data.sources import load
from pipelines.export import onnx_model
from pipelines.studies.papers.factors.walk_forward import WEIGHTS, measured
from pipelines.training import checkpoint, metrics_file
from pipelines.training.evaluate import evaluate
from pipelines.training.train import train
from pipelines.verbs.cli import main
from pipelines.verbs.train import parse_train
from serving import manifest


@pytest.fixture(scope="module")
def data_dir(fama_french):
    return fama_french


def train_run(path, data_dir, *words):
    train(parse_train(list(words)).config, path, data_dir=data_dir, console=Console(file=io.StringIO()))
    return runs.open_run(path)


@pytest.fixture(scope="module")
def trained_run(data_dir, shared, tmp_path_factory):
    def make(folder):
        # At this learning rate the last epoch is not the best.
        train_run(folder / "run", data_dir, "factor", "--epochs", "6", "--optimizer.learning-rate", "0.005")

    path = shutil.copytree(shared("factor", make) / "run", tmp_path_factory.mktemp("runs") / "factor")
    return runs.open_run(path)


def test_training_minimizes_and_records_the_mean_squared_error(trained_run, data_dir):
    assert trained_run.record.state == "finished"
    assert (trained_run.record.data.shape, trained_run.record.data.labels) == ((4,), ())
    assert len(trained_run.record.gates) == 4
    rows = metrics_file.read(trained_run.path / "metrics.csv")
    assert list(rows[0])[:8] == ["epoch", "step", "seconds", "learning_rate", "loss", "mae", "val_loss", "val_mae"]
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(trained_run.path / "preprocess.npz"), examples.images)
    errors = runs.load_model(trained_run).predict(inputs, verbose=0) - examples.labels
    assert np.square(errors).mean() == pytest.approx(rows[-1]["val_loss"], rel=1e-5)
    assert np.abs(errors).mean() == pytest.approx(rows[-1]["val_mae"], rel=1e-5)


def test_preprocessing_is_fitted_on_training_months_only(trained_run, data_dir):
    mean = preprocess.load(trained_run.path / "preprocess.npz").mean
    train_months = load("fama_french", "train", data_dir).images
    np.testing.assert_allclose(mean, 0.2 * train_months.astype(float).mean(axis=0), rtol=1e-5)


def test_the_best_epoch_has_the_lowest_validation_loss(trained_run, data_dir):
    losses = [row["val_loss"] for row in metrics_file.read(trained_run.path / "metrics.csv")]
    best = int(np.argmin(losses))
    assert best not in {0, len(losses) - 1}
    assert trained_run.record.metrics["best_epoch"] == best + 1
    assert trained_run.record.metrics["best_val_loss"] == pytest.approx(losses[best], rel=1e-8)
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(trained_run.path / "preprocess.npz"), examples.images)
    errors = runs.load_model(trained_run, "best").predict(inputs, verbose=0) - examples.labels
    assert np.square(errors).mean() == pytest.approx(losses[best], rel=1e-5)


def test_evaluation_reports_r2_against_the_mean_of_the_test_split(trained_run, data_dir, capsys):
    assert main(["evaluate", str(trained_run.path), "--data-dir", str(data_dir)]) == 0
    said = capsys.readouterr().out
    assert "R²" in said
    assert "next: highway export" in said
    found = json.loads((trained_run.path / "evaluation.json").read_text())
    targets = {name: load("fama_french", name, data_dir).labels.astype(float) for name in ("train", "test")}
    inputs = preprocess.apply(
        preprocess.load(trained_run.path / "preprocess.npz"), load("fama_french", "test", data_dir).images
    )
    errors = runs.load_model(trained_run).predict(inputs, verbose=0) - targets["test"]
    mean = targets["train"].mean()
    assert found["count"] == 167
    assert found["training_mean"] == pytest.approx(mean)
    assert found["r2"] == pytest.approx(
        1 - np.square(errors).sum() / np.square(targets["test"] - targets["test"].mean()).sum()
    )
    report = (trained_run.path / "report.md").read_text()
    assert f"**{found['r2']:.4f}**" in report
    assert "validation, best epoch" in report
    for figure in ("learning_curve", "gates", "forecast"):
        assert (trained_run.path / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert f"](figures/{figure}.png)" in report
    assert not (trained_run.path / "figures" / "confusion.png").exists()


def test_vectors_without_names_are_exported_with_numbers_for_names(trained_run, data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(trained_run.path), "--to", "models/factor", "--data-dir", str(data_dir)]) == 0
    content = manifest.read(tmp_path / "models" / "factor" / "1")
    assert [(column.name, column.categories) for column in content.columns] == [(str(one), None) for one in range(4)]
    assert (content.target, content.labels, len(content.gates)) == ("target", (), 4)
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(trained_run.path / "preprocess.npz"), examples.images)
    expected = runs.load_model(trained_run).predict(inputs, verbose=0)
    found = onnx_model.predictor(tmp_path / "models" / "factor" / "1" / "model.onnx")(examples.images)
    np.testing.assert_allclose(found["value"], expected, atol=1e-4)
    assert main(["export", "models/factor", "--verify"]) == 0


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_result(data_dir, tmp_path, monkeypatch):
    words = ("factor", "--epochs", "2", "--model.width", "16")
    whole = train_run(tmp_path / "whole", data_dir, *words)
    save = checkpoint.save

    def interrupted_save(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", interrupted_save)
        with pytest.raises(KeyboardInterrupt):
            train_run(tmp_path / "killed", data_dir, *words)
    assert main(["train", "--resume", str(tmp_path / "killed"), "--data-dir", str(data_dir)]) == 0
    again = runs.open_run(tmp_path / "killed")
    assert again.record.metrics == whole.record.metrics
    for one, other in zip(*(runs.load_model(run).get_weights() for run in (whole, again)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_fold_is_measured_on_its_test_months(data_dir, tmp_path):
    words = ("factor", "--data", "fama_french/1940s", "--epochs", "2", "--model.width", "16")
    run = train_run(tmp_path / "fold", data_dir, *words)
    evaluated = evaluate(run.path, WEIGHTS, data_dir)
    found = measured(run, data_dir)
    targets = load("fama_french/1940s", "test", data_dir).labels[:, 0]
    assert np.sqrt(np.square(found["forecast"] - targets).mean()) == pytest.approx(evaluated.rmse, rel=1e-5)
    assert found["gates"].shape == found["untrained"].shape == (281, 4)
    # Training records the gates of the validation months: 129 to 161.
    rows = metrics_file.read(run.path / "metrics.csv")
    best = int(run.record.metrics["best_epoch"]) - 1
    for layer, (name, before) in enumerate(run.record.gates.items()):
        assert found["untrained"][129:161, layer].mean() == pytest.approx(before, rel=1e-5)
        assert found["gates"][129:161, layer].mean() == pytest.approx(rows[best][f"gate/{name}"], rel=1e-5)


def test_the_plain_twin_trains(data_dir, tmp_path):
    run = train_run(tmp_path / "plain", data_dir, "factor_plain", "--epochs", "1", "--data", "fama_french/1950s")
    assert run.record.gates == {}
    assert set(measured(run, data_dir)) == {"forecast"}
    assert run.record.metrics["mae"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["factor", "--augment.pad", "2", "--augment.mirror"], "for --augment.pad, --augment.mirror."),
        (["factor", "--preprocess.contrast", "1"], "for --preprocess.contrast."),
        (["factor", "--label-smoothing", "0.1"], "for --label-smoothing."),
        (["mnist_conv_16", "--data", "fama_french"], "cannot be built for fama_french (inputs of 4, outputs: 1)"),
    ],
)
def test_options_for_images_are_refused_before_anything_is_written(words, message, data_dir, tmp_path, capsys):
    keras.backend.clear_session()
    assert main(["train", *words, "--run", str(tmp_path / "run"), "--data-dir", str(data_dir)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_analysis_uses_the_loss_only(trained_run, data_dir, tmp_path):
    words = ["analyze", str(trained_run.path), "--data-dir", str(data_dir), "--to", str(tmp_path / "analysis")]
    assert main(words) == 0
    with np.load(tmp_path / "analysis" / "arrays.npz") as arrays:
        examples = load("fama_french", "train", data_dir)
        inputs = preprocess.apply(preprocess.load(trained_run.path / "preprocess.npz"), examples.images)
        errors = runs.load_model(trained_run).predict(inputs, verbose=0) - examples.labels
        assert arrays["lesion_intact_loss"] == pytest.approx(np.square(errors).mean(), rel=1e-5)
        assert arrays["lesion_loss"].shape == (4,)
        assert arrays["class_means"].shape == (1, arrays["mean"].size)
        assert not {"lesion_accuracy", "route_classes"} & set(arrays)
    assert not (tmp_path / "analysis" / "figures" / "classes.png").exists()
    assert "](figures/lesions.png)" in (tmp_path / "analysis" / "analysis.md").read_text()


@pytest.mark.slow
def test_pruning_goes_by_the_loss(trained_run, data_dir, tmp_path):
    words = ["prune", str(trained_run.path), "--to", str(tmp_path / "small"), "--data-dir", str(data_dir)]
    assert main([*words, "--tolerance", "0.5"]) == 0
    run = runs.open_run(tmp_path / "small")
    found = run.record.pruned
    assert found.before.keys() == found.after.keys() == {"loss"}
    assert found.after["loss"] <= 1.5 * found.before["loss"]
    examples = load("fama_french", "validation", data_dir)
    inputs = preprocess.apply(preprocess.load(run.path / "preprocess.npz"), examples.images)
    errors = runs.load_model(run).predict(inputs, verbose=0) - examples.labels
    assert found.after["loss"] == pytest.approx(np.square(errors).mean(), rel=1e-4)
    report = (tmp_path / "small" / "report.md").read_text()
    assert f"validation, {found.examples:,} examples, pruned" in report

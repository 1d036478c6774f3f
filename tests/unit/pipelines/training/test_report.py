import keras
import numpy as np
import pytest

from pipelines.core.run import DataRecord
from pipelines.training import evaluation, report
from tests.finished_run import finished


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_losses_of_a_regression_have_four_digits_in_any_unit(tmp_path, scale):
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    counts = {"train": 4, "validation": 2, "test": 3}
    data = DataRecord(name="returns", version="1.0.0", shape=(3,), labels=(), counts=counts)
    run = finished(tmp_path / "run", net, data=data)
    losses = {"loss": 1.5 * scale**2, "val_loss": 2.5 * scale**2, "best_val_loss": 2.25 * scale**2}
    run.update(metrics={**losses, "mae": scale, "val_mae": scale, "best_epoch": 1.0})
    targets = scale * np.array([[1.0], [2], [3]])
    measured = evaluation.measure_regression(targets + 2 * scale, targets, 0.0, "final", "returns 1.0.0")
    (run.path / "evaluation.json").write_text(measured.model_dump_json())
    shown = report.text(run)
    for loss in (4 * scale**2, *losses.values()):
        assert f"| {loss:.4g} |" in shown


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_losses_of_a_net_with_any_number_of_classes_exclude_the_penalty(tmp_path, smoothing):
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    counts = {"train": 4, "validation": 2, "test": 3}
    data = DataRecord(name="tags", version="1.0.0", shape=(3,), labels=("a", "b"), counts=counts, multi_label=True)
    run = finished(tmp_path / "run", net, data=data, label_smoothing=smoothing)
    scores = {"f1": 0.5, "label_accuracy": 0.75, "loss": 3.0, "cross_entropy": 1.5}
    held_out = {f"val_{name}": value + 0.125 for name, value in scores.items()}
    run.update(metrics={**scores, **held_out, "best_epoch": 2.0, "best_val_cross_entropy": 1.25})
    shown = report.text(run)
    for row in (
        "| validation, last epoch | 0.625 | 1.6250 |",
        "| training, last epoch | 0.500 | 1.5000 |",
        "| validation, best epoch (2) |  | 1.2500 |",
    ):
        assert row in shown
    added = "the weight penalty and label smoothing" if smoothing else "the weight penalty"
    assert f"Losses exclude {added}: they are `cross_entropy` in metrics.csv, not `loss`; training metrics" in shown


@pytest.mark.parametrize(
    ("config", "includes"),
    [
        ({}, "includes the weight penalty; training metrics are means over the epoch"),
        ({"label_smoothing": 0.1}, "includes the weight penalty and label smoothing; training metrics"),
        ({"class_weights": "balanced"}, "the weight penalty; that of training also weighs the classes; "),
    ],
)
def test_the_report_says_what_the_losses_include(tmp_path, config, includes):
    net = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    run = finished(tmp_path / "run", net, **config)
    run.update(metrics={})
    assert includes in report.text(run)

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from pipelines.core.plotting import STYLE
from pipelines.training import evaluation, figures


def rows(epochs, layers=3, validation=True):
    made = []
    for epoch in range(1, epochs + 1):
        row = {"step": 10.0 * epoch, "loss": 1 / epoch, "accuracy": 1 - 1 / epoch}
        if validation:
            row |= {"val_loss": 2 / epoch, "val_accuracy": 0.9 - 1 / epoch}
        made.append(row | {f"gate/highway_{layer}": 0.1 * layer / epoch for layer in range(1, layers + 1)})
    return made


@pytest.fixture
def figure():
    with mpl.rc_context(STYLE):
        yield Figure(layout="constrained")


@pytest.mark.parametrize("epochs", [1, 2, 60])
@pytest.mark.parametrize("validation", [False, True])
def test_learning_curves_show_what_was_measured(figure, epochs, validation):
    figures.learning_curve(figure, rows(epochs, validation=validation), "toy")
    loss, accuracy = figure.axes
    assert len(loss.lines) == len(accuracy.lines) == 1 + validation
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [1 / (epoch + 1) for epoch in range(epochs)])
    assert loss.get_yscale() == ("log" if epochs > 2 else "linear")
    figure.canvas.draw()


@pytest.mark.parametrize(("metric", "title"), [("mae", "mean absolute error"), ("f1", "macro F1")])
def test_without_accuracy_another_score_is_shown(figure, metric, title):
    names = {"accuracy": metric, "val_accuracy": f"val_{metric}"}
    figures.learning_curve(figure, [{names.get(key, key): row[key] for key in row} for row in rows(3)], "toy")
    assert [axes.get_title() for axes in figure.axes] == ["loss", title]
    assert len(figure.axes[1].lines) == 2
    figure.canvas.draw()


def test_a_forecast_shows_predictions_and_targets_on_one_scale(figure):
    predicted, targets = np.array([[0.5], [0.6], [0.4]]), np.array([[-3.0], [4.0], [1.0]])
    result = evaluation.measure_regression(predicted, targets, 0.3, "final", "toy 1.0.0")
    figures.forecast(figure, result, predicted[:, 0], targets[:, 0], "toy")
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), targets[:, 0])
    np.testing.assert_array_equal(left.lines[1].get_ydata(), predicted[:, 0])
    np.testing.assert_array_equal(right.collections[0].get_offsets(), np.hstack([predicted, targets]))
    assert right.get_aspect() == 1
    figure.canvas.draw()


def test_a_loss_of_zero_has_no_logarithm(figure):
    made = [*rows(10, validation=False), {"step": 110.0, "loss": 0.0, "accuracy": 1.0}]
    figures.learning_curve(figure, made, "toy")
    assert figure.axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("layers", [1, 8, 50])
def test_gates_show_before_after_and_between(figure, layers):
    before = {f"highway_{layer}": 0.2 for layer in range(1, layers + 1)}
    figures.gates(figure, rows(4, layers), before, "toy")
    left, right = figure.axes[:2]
    np.testing.assert_allclose(left.lines[0].get_ydata(), [0.2] * layers)
    np.testing.assert_allclose(left.lines[1].get_ydata(), [0.025 * layer for layer in range(1, layers + 1)])
    assert right.collections[0].get_array().shape == (layers, 4)
    figure.canvas.draw()


@pytest.mark.parametrize(("low", "scale"), [(2.0, "linear"), (1e-5, "log"), (0.0, "linear")])
def test_gates_that_open_by_orders_of_magnitude_are_shown_on_their_scale(figure, low, scale):
    # As in a net of a thousand layers; a gate may also be 0 in float32. The last of the 999 rows ends at 25.
    before = {f"highway_{layer}": low for layer in range(1, 1000)}
    figures.gates(figure, rows(4, 999), before, "toy")
    left, right, bar = figure.axes
    assert left.get_yscale() == bar.get_yscale() == scale
    assert left.lines[1].get_linestyle() == "None"
    assert left.get_ylim()[1] > 24.975
    assert right.collections[0].get_array().shape == (999, 4)
    figure.canvas.draw()


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_confusion_shows_shares_of_the_true_class(figure, classes):
    labels = np.repeat(np.arange(classes), 4)
    logits = np.eye(classes)[np.where(np.arange(len(labels)) % 4, labels, 0)]
    names = tuple(f"class {index}" for index in range(classes))
    figures.confusion(figure, evaluation.measure(logits, labels, names, "final", "toy"), "toy")
    shares = figure.axes[0].images[0].get_array()
    assert shares[-1, -1] == 0.75
    assert shares[-1, 0] == 0.25
    assert len(figure.axes[0].texts) == (0 if classes > 20 else 2 * classes - 1)
    figure.canvas.draw()


def test_values_of_a_table_are_drawn_against_the_true_ones(figure):
    predicted, targets = np.array([1.0, 2.5, 2.0]), np.array([1.5, 2.0, 4.0])
    result = evaluation.measure_regression(predicted[:, None], targets[:, None], 2.2, "final", "houses 1.0.0")
    figures.values(figure, result, predicted, targets, "price")
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.collections[0].get_offsets(), np.stack([targets, predicted], 1))
    assert axes.get_xlim() == axes.get_ylim() == pytest.approx((0.88, 4.12))
    figure.canvas.draw()

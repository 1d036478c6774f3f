import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from pipelines import evaluation, figures


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
    with mpl.rc_context(figures.STYLE):
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


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_confusion_shows_shares_of_the_true_class(figure, classes):
    labels = np.repeat(np.arange(classes), 4)
    logits = np.eye(classes)[np.where(np.arange(len(labels)) % 4, labels, 0)]
    names = tuple(f"class {index}" for index in range(classes))
    figures.confusion(figure, evaluation.evaluate(logits, labels, names, "final", "toy"), "toy")
    shares = figure.axes[0].images[0].get_array()
    assert shares[-1, -1] == 0.75
    assert shares[-1, 0] == 0.25
    assert len(figure.axes[0].texts) == (0 if classes > 20 else 2 * classes - 1)
    figure.canvas.draw()

"""Plots show the measured values, for few layers and for a thousand."""

import numpy as np
import pytest

from highway_keras.analysis import Elimination, GateStatistics, Lesions
from highway_keras.analysis.layout import Call, Layout
from tests.unit.highway_keras.backend import BACKEND

Figure = pytest.importorskip("matplotlib.figure", reason="plots need Matplotlib").Figure
plots = pytest.importorskip("highway_keras.analysis.plots")
pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="plots are the same on every backend")
LAYOUTS = {
    "one": Layout((Call("a", None, 3),)),
    "conv": Layout((Call("a", None, 4, 36), Call("b", None, 2, 9), Call("c", None, 3))),
    "thousand": Layout((Call("deep", 999, 5),)),
}


@pytest.fixture
def figure():
    return Figure(layout="constrained")


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


def statistics(layout, classes=4):
    rng = np.random.default_rng(0)
    means = rng.random((classes, layout.gates))
    means[1] = np.nan
    counts = np.array([3, 0, *[5] * (classes - 2)])
    layers = len(layout.layers)
    low, high = rng.random((2, layout.gates)) / 2
    return GateStatistics(
        layout, means[0] - 3, np.full(layers, -2.0), counts, means, low, high, low, ("float32",) * layers
    )


def lesions(layout, scores, count=None):
    count = count or len(layout.layers)
    rng = np.random.default_rng(0)
    return Lesions(layout, None, 10, dict.fromkeys(scores, 0.4), {score: rng.random(count) for score in scores})


def drawn(mesh):
    return np.ma.filled(mesh.get_array(), np.nan)


def test_a_map_has_a_row_for_each_layer(layout):
    grid = plots.layer_map(layout, np.arange(layout.gates))
    assert grid.shape == (len(layout.layers), max(layout.units))
    assert grid[~np.isnan(grid)].tolist() == list(range(layout.gates))
    assert np.isnan(grid).sum(axis=1).tolist() == [max(layout.units) - units for units in layout.units]


def test_gate_maps_show_each_value_on_its_scale(layout, figure):
    rng = np.random.default_rng(0)
    maps = {name: rng.normal(size=layout.gates) for name in ("bias", "output")} | {
        name: rng.random(layout.gates) for name in ("mean", "one")
    }
    plots.gate_maps(figure, layout, maps, signed=("output",), shared=("mean", "one"))
    for axes, (title, gates) in zip(figure.axes, maps.items(), strict=False):
        (mesh,) = axes.collections
        np.testing.assert_array_equal(drawn(mesh), plots.layer_map(layout, gates))
        assert axes.get_title() == title
        low, high = mesh.get_clim()
        if title == "output":
            assert low == -high == -np.abs(gates).max()
        elif title != "bias":
            assert (low, high) == (0, max(maps["mean"].max(), maps["one"].max()))
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1]  # the input's side on top
    figure.canvas.draw()


def test_axes_are_named_by_what_they_count(figure):
    for name, label in {"one": "unit", "conv": "unit"}.items():
        figure.clear()
        plots.gate_maps(figure, LAYOUTS[name], {"a": np.ones(LAYOUTS[name].gates)})
        assert figure.axes[0].get_xlabel() == label
    figure.clear()
    channels = Layout((Call("a", None, 3, 36),))
    plots.gate_maps(figure, channels, {"a": np.ones(3)})
    assert figure.axes[0].get_xlabel() == "channel"


@pytest.mark.parametrize("names", [{0: "zero"}, {0: "zero", 2: "two"}, {number: str(number) for number in range(7)}])
def test_class_maps_show_differences_on_one_scale(layout, figure, names):
    found = statistics(layout, classes=7)
    plots.class_maps(figure, found, names)
    shown = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in shown] == list(names.values())
    largest = np.nanmax(np.abs(found.differences[list(names)]))
    for axes, number in zip(shown, names, strict=True):
        (mesh,) = axes.collections
        np.testing.assert_array_equal(drawn(mesh), plots.layer_map(layout, found.differences[number]))
        assert mesh.get_clim() == (-largest, largest)
    figure.canvas.draw()


@pytest.mark.parametrize("scores", [("accuracy", "loss"), ("loss",)])
def test_a_lesion_curve_has_a_point_for_each_layer_and_the_intact_net(layout, figure, scores):
    found = lesions(layout, scores)
    plots.lesion_curve(figure, found)
    assert len(figure.axes) == len(scores)
    for axes, score in zip(figure.axes, sorted(scores, reverse=True), strict=True):
        curve, intact = axes.lines
        np.testing.assert_array_equal(curve.get_ydata(), found.scores[score])
        np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, len(layout.layers) + 1))
        assert set(intact.get_ydata()) == {0.4}
        assert score in axes.get_title()
    figure.canvas.draw()


def test_other_seeds_are_thin_lines_each_with_its_intact_net(layout, figure):
    found, other, third = (lesions(layout, ("loss",)) for _ in range(3))
    other.scores["loss"][:] = 9 * other.scores["loss"]
    other.intact["loss"], third.intact["loss"] = 0.3, 0.2
    plots.lesion_curve(figure, found, [other, third])
    (axes,) = figure.axes
    curves, intact = axes.lines[::2], axes.lines[1::2]
    for line, each in zip(curves, (found, other, third), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), each.scores["loss"])
    assert [set(line.get_ydata()) for line in intact] == [{0.4}, {0.3}, {0.2}]
    assert [line.get_color() for line in curves] == [line.get_color() for line in intact]
    assert len({line.get_color() for line in curves}) == 3
    legend = [text.get_text() for text in axes.get_legend().texts]
    assert legend == ["one layer closed", "intact net", "another seed", "another seed"]


@pytest.mark.parametrize("scores", [("accuracy", "loss"), ("loss",)])
def test_an_elimination_curve_has_a_point_for_each_state_and_marks_the_net(layout, figure, scores):
    layers = len(layout.layers)
    closed, rng = np.array([0, *range(1, layers + 1, 2)]), np.random.default_rng(0)
    values = {score: rng.random(len(closed)) for score in scores}
    plots.elimination_curve(figure, Elimination(layout, tuple(range(layers)), closed, 10, values), 1)
    for axes, score in zip(figure.axes, sorted(scores, reverse=True), strict=True):
        curve, intact, net = axes.lines
        np.testing.assert_array_equal(curve.get_ydata(), values[score])
        np.testing.assert_array_equal(curve.get_xdata(), closed)
        assert set(intact.get_ydata()) == {values[score][0]}
        assert set(net.get_xdata()) == {1}
        assert f"{layers - 1} of {layers} layers left" in [text.get_text() for text in axes.get_legend().texts]
    figure.canvas.draw()


def test_unit_lesions_are_a_map_of_their_costs(layout, figure):
    found = lesions(layout, ("loss",), layout.gates)
    plots.lesion_map(figure, found)
    np.testing.assert_array_equal(drawn(figure.axes[0].collections[0]), plots.layer_map(layout, found.cost()))
    figure.canvas.draw()


def test_a_few_large_numbers_do_not_hide_the_small_ones(figure):
    layout = LAYOUTS["thousand"]
    found = lesions(layout, ("loss",), layout.gates)
    found.scores["loss"][:] = 0.4 + np.where(np.arange(layout.gates) < 9, 1.0, 0.01)
    plots.lesion_map(figure, found)
    mesh = figure.axes[0].collections[0]
    assert mesh.norm(0.0) == pytest.approx(0.5)
    assert mesh.norm(0.01) == pytest.approx(0.55)
    assert mesh.norm(-1.0) == pytest.approx(0, abs=1e-9)


def test_openness_adds_up_to_one(layout, figure):
    found = statistics(layout)
    axes = figure.subplots()
    plots.openness(axes, found)
    layers = len(layout.layers)
    left, between, right = (np.array([bar.get_height() for bar in part]) for part in axes.containers)
    assert len(left) == layers
    np.testing.assert_allclose(left + between + right, 1)
    np.testing.assert_allclose(left, [values.mean() for values in layout.split(found.left).values()])
    np.testing.assert_allclose(right, [values.mean() for values in layout.split(found.right).values()])
    figure.canvas.draw()


def test_bands_hold_their_share_of_the_examples(layout, figure):
    routes = np.random.default_rng(0).random((200, len(layout.layers)))
    axes = figure.subplots()
    plots.route_bands(axes, layout, routes)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), np.median(routes, axis=0))
    path = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert path.min() == np.percentile(routes, 5, axis=0).min()
    assert path.max() == np.percentile(routes, 95, axis=0).max()
    figure.canvas.draw()


def test_bands_are_labelled_by_unit_or_channel(figure):
    left, right = figure.subplots(1, 2)
    plots.route_bands(left, LAYOUTS["one"], np.ones((3, 1)))
    plots.route_bands(right, Layout((Call("a", None, 4, 36),)), np.ones((3, 1)))
    assert left.get_ylabel() == "mean of T over the units of the layer"
    assert right.get_ylabel() == "mean of T over the channels of the layer"

"""Gate statistics computed in batches equal those over all gates at once."""

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack, gates
from highway_keras.analysis import GateStatistics, gate_statistics, in_batches, layer_outputs, open_layers
from highway_keras.analysis.layout import Call, Layout
from highway_keras.layers import recording
from highway_keras.surgery import unstacked
from tests.unit.highway_keras.analysis.small_nets import CLASSES, NETS, ZEROS, examples, net, without
from tests.unit.highway_keras.backend import array, param_slow_on_jax, scramble, slow_on_jax


def rows(read):
    """Reshapes gates to `[examples, positions, units]`."""
    return {name: gate.reshape(len(gate), -1, gate.shape[-1]).astype("float64") for name, gate in read.items()}


@pytest.mark.parametrize("name", ["dense", "stacked", *map(param_slow_on_jax, ("conv", "subclassed"))])
def test_sums_over_batches_are_those_over_all_gates(name):
    model, (x, y) = net(name), examples(name, 11)
    y[y == 1] = 0  # A class without examples.
    found = gate_statistics(model, in_batches(x, y, 4), CLASSES)
    every = rows(gates(model, x))
    assert found.layout.layers == tuple(every)
    np.testing.assert_array_equal(found.counts, np.bincount(y, minlength=CLASSES))
    for layer, gate in every.items():
        parts = {
            part: found.layout.split(getattr(found, part))[layer]
            for part in ("means", "mean", "differences", "left", "right", "slope")
        }
        np.testing.assert_allclose(parts["mean"], gate.mean((0, 1)), rtol=1e-5)
        for label in (0, 2):
            of_class = gate[y == label].mean((0, 1))
            np.testing.assert_allclose(parts["means"][label], of_class, rtol=1e-5)
            np.testing.assert_allclose(parts["differences"][label], of_class - gate.mean((0, 1)), rtol=1e-3, atol=1e-6)
        assert np.isnan(parts["means"][1]).all()
        np.testing.assert_allclose(parts["left"], (gate < 0.1).mean((0, 1)), atol=1e-6)
        np.testing.assert_allclose(parts["right"], (gate > 0.9).mean((0, 1)), atol=1e-6)
        np.testing.assert_allclose(parts["slope"], (gate * (1 - gate)).max((0, 1)), rtol=1e-5)


def test_biases_and_initial_biases_by_layer():
    inputs = keras.Input((2,))
    stack = HighwayStack(2, name="stack", transform_bias=-3.0, **ZEROS)
    single = Highway(name="single", transform_bias=-1.0, **ZEROS)
    model = keras.Model(inputs, single(stack(inputs)))
    scramble(model)
    found = gate_statistics(model, [(np.zeros((3, 2), "float32"), np.zeros(3))])
    np.testing.assert_array_equal(found.initial_bias, [-3, -3, -1])
    split = found.layout.split(found.bias)
    np.testing.assert_allclose(split["stack_02"], array(stack.transform_bias)[1])
    np.testing.assert_allclose(split["single"], array(single.transform_bias))


@slow_on_jax
def test_one_hot_labels_are_classes_and_other_targets_are_ignored():
    model, (x, y) = net("stacked"), examples("stacked")
    numbers = gate_statistics(model, in_batches(x, y), CLASSES)
    one_hot = gate_statistics(model, in_batches(x, np.eye(CLASSES)[y]), CLASSES)
    np.testing.assert_array_equal(numbers.means, one_hot.means)
    none = gate_statistics(model, in_batches(x, np.random.default_rng(0).normal(size=(11, 1))))
    assert none.means.shape == (1, numbers.layout.gates)
    np.testing.assert_allclose(none.mean, numbers.mean, rtol=1e-6)


@pytest.mark.parametrize("y", [[0, 3], [-1, 0], [0.5, 1.0], [[1, 0], [0, 1]]], ids=["large", "small", "float", "width"])
def test_labels_that_are_not_classes_are_rejected(y):
    x, _ = examples("stacked", 2)
    with pytest.raises(ValueError, match=r"class numbers from 0 to 2"):
        gate_statistics(net("stacked"), [(x, np.array(y))], CLASSES)


@pytest.mark.parametrize(
    ("policy", "bias", "dead"),
    [
        ("float32", -20, False),
        ("mixed_bfloat16", -20, False),
        ("mixed_float16", -20, True),
        ("mixed_float16", -15, False),
        ("float32", -120, True),
        ("float32", 20, True),
    ],
)
def test_a_gate_is_dead_where_its_slope_rounds_to_0_in_its_format(policy, bias, dead):
    layer = Highway(dtype=policy, **ZEROS)
    model = keras.Sequential([keras.Input((2,)), layer])
    layer.transform_bias.assign([bias, 0.0])
    found = gate_statistics(model, [(np.zeros((3, 2), "float32"), np.zeros(3))])
    np.testing.assert_array_equal(found.dead, [dead, False])


def test_progress_is_reported_in_examples():
    reported = []
    gate_statistics(net("dense"), in_batches(*examples("dense"), 4), progress=reported.append)
    assert reported == [4, 8, 11]


@slow_on_jax
@pytest.mark.parametrize("name", NETS)
def test_layer_outputs_are_those_of_the_layers(name):
    model, (x, _) = net(name), examples(name, 5)
    read = layer_outputs(model, x, batch_size=2)
    assert list(read) == list(gates(model, x))
    with recording(outputs=True) as recorded:
        (model if name == "subclassed" else unstacked(model))(x, training=False)
    for (layer, found), expected in zip(read.items(), recorded.outputs.values(), strict=True):
        np.testing.assert_allclose(found, array(expected), rtol=1e-4, atol=1e-5, err_msg=layer)


@slow_on_jax
def test_the_output_of_the_last_layer_of_a_stack_is_that_of_the_stack():
    model, (x, _) = net("stacked"), examples("stacked", 5)
    inner = keras.Model(model.input, model.get_layer("stack").output)
    np.testing.assert_allclose(layer_outputs(model, x)["stack_04"], inner.predict_on_batch(x), rtol=1e-5)
    first = keras.Model(model.input, model.layers[1].output)
    carried = without(model, ("stack_02", "stack_03", "stack_04"))
    assert carried(x).shape == (5, CLASSES)
    assert layer_outputs(model, x)["stack_01"].shape == first.predict_on_batch(x).shape


def test_the_sum_of_open_layers_does_not_depend_on_their_widths():
    layout = Layout((Call("a", None, 1), Call("b", 2, 3)))
    means = np.array([[1.0, *[0.5] * 3, *[0.0, 0.0, 0.3]]])
    nothing = np.zeros(7)
    found = GateStatistics(layout, nothing, nothing, np.array([4]), means, nothing, nothing, nothing, ("float32",) * 3)
    assert open_layers(found) == pytest.approx(1 + 0.5 + 0.1)

"""Channels first gives the same numbers as channels last, with permuted axes."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, analysis, gates
from highway_keras.analysis import gate_statistics, lesion_layers, lesion_units
from highway_keras.analysis.batches import in_batches
from highway_keras.layers import Lesion, lesioned
from highway_keras.models.blocks import block
from tests.unit.highway_keras.backend import (
    PRECISE,
    array,
    compiled,
    gradients,
    inputs,
    param_slow_on_jax,
    scramble,
    slow_on_jax,
)
from tests.unit.highway_keras.stacks import assert_close

ZEROS = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}
SHAPES = {"1-D": (2, 6, 3), "2-D": (2, 5, 4, 3), "3-D": (2, 3, 4, 2, 3)}
CASES = [
    ("2-D", {}),
    param_slow_on_jax("1-D", {}),
    param_slow_on_jax("3-D", {}),
    param_slow_on_jax("1-D", {"carry_gate": "separate"}),
    param_slow_on_jax("2-D", {"batch_normalization": True}),
    param_slow_on_jax("1-D", {"padding": "causal", "dilation_rate": 2}),
    param_slow_on_jax("2-D", {"groups": 3}),
]


def channels_first(array):
    return np.moveaxis(array, -1, 1)


def pair(shape, **arguments):
    """Returns the same layer in both formats."""
    layers = []
    for data_format in ("channels_last", "channels_first"):
        layer = ConvHighway(3, data_format=data_format, name="layer", **ZEROS, **arguments)
        layer.build(shape if data_format == "channels_last" else (shape[0], shape[-1], *shape[1:-1]))
        layers.append(scramble(layer))
    return layers


@pytest.mark.parametrize(("kind", "arguments"), CASES)
def test_outputs_gates_and_gradients_are_those_of_channels_last(kind, arguments):
    shape = SHAPES[kind]
    last, first = pair(shape, dtype=PRECISE, **arguments)
    assert [weight.shape for weight in first.weights] == [weight.shape for weight in last.weights]
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    expected = gradients(last, x, upstream, training=True)
    expected["x"] = channels_first(expected["x"])
    assert_close(gradients(first, channels_first(x), channels_first(upstream), training=True), expected, PRECISE)
    assert_close(array(first(channels_first(x))), channels_first(array(last(x))), PRECISE)
    assert_close(array(first.gates(channels_first(x))), channels_first(array(last.gates(x))), PRECISE)
    assert first.compute_output_shape(channels_first(x).shape) == channels_first(x).shape


@slow_on_jax
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_products_in_low_precision_are_those_of_channels_last(policy):
    last, first = pair((2, 5, 4, 3), dtype=policy)
    x = inputs(2, 5, 4, 3).astype("float32")
    y, expected = (compiled(lambda x, layer=layer: layer(x, training=True), xla=False) for layer in (first, last))
    np.testing.assert_allclose(array(y(channels_first(x))), channels_first(array(expected(x))), atol=0.05)


@pytest.mark.parametrize("normalized", [False, True])
def test_masks_have_no_channel_axis(normalized):
    last, first = pair((2, 5, 3), batch_normalization=normalized)
    x = inputs(2, 5, 3).astype("float32")
    mask = np.array([[True] * 5, [True, True, True, False, False]])
    y = array(first(channels_first(x), mask=mask, training=normalized))
    assert_close(y, channels_first(array(last(x, mask=mask, training=normalized))), "float32")


def test_lesions_close_channels():
    last, first = pair((2, 5, 4, 3))
    x = inputs(2, 5, 4, 3).astype("float32")
    lesion = Lesion([True, False, True])
    with lesioned({"layer": lesion, "layer:2": lesion}):
        y, expected = array(first(channels_first(x))), channels_first(array(last(x)))
    assert_close(y, expected, "float32")
    np.testing.assert_array_equal(y[:, ::2], channels_first(x)[:, ::2])


def test_the_default_is_the_format_set_in_keras():
    assert ConvHighway(3).data_format == "channels_last"
    keras.config.set_image_data_format("channels_first")
    try:
        layer = ConvHighway(3, **ZEROS)
        layer.build((None, 8, 32, 32))
        assert layer.count_params() == 2 * (9 * 8 * 8 + 8)
        image = keras.Input((6, 6, 2))
        net = keras.Model(image, block("highway", image, name="block", kernel_size=3, initializer="zeros"))
        assert net.get_layer("block").data_format == "channels_last"
        before = {name: value for name, value in layer.get_config().items() if name != "data_format"}
        assert ConvHighway.from_config(before).data_format == "channels_last"
    finally:
        keras.config.set_image_data_format("channels_last")
    again = ConvHighway.from_config(layer.get_config())
    assert again.data_format == "channels_first"
    with pytest.raises(ValueError, match=r"'channels_first', or None .* Received: data_format='NCHW'"):
        ConvHighway(3, data_format="NCHW")
    with pytest.raises(ValueError, match=r"second axis .* must be defined.* input_shape=\(None, None, 4, 4\)"):
        again.build((None, None, 4, 4))


@pytest.fixture(scope="module")
def net_in_both_formats():
    """Returns a net in both formats."""
    made = []
    for data_format in ("channels_last", "channels_first"):
        image = keras.Input((4, 5, 3) if data_format == "channels_last" else (3, 4, 5))
        x = ConvHighway(3, data_format=data_format, name="a", **ZEROS)(image)
        x = ConvHighway(1, data_format=data_format, activation="tanh", name="b", **ZEROS)(x)
        x = keras.layers.GlobalAveragePooling2D(data_format=data_format)(x)
        made.append(scramble(keras.Model(image, keras.layers.Dense(2, kernel_initializer="zeros")(x))))
    return made


@slow_on_jax
def test_analysis_treats_the_second_axis_as_channels(net_in_both_formats):
    x, labels = inputs(6, 4, 5, 3).astype("float32"), np.arange(6) % 2
    last, first = (
        [
            (statistics := gate_statistics(net, in_batches(images, labels), classes=2)).means,
            statistics.slope,
            lesion_layers(net, in_batches(images, labels)).cost(),
            lesion_units(net, in_batches(images, labels)).cost(),
            analysis.signatures(net, images, per="unit"),
            analysis.signatures(net, images),
        ]
        for net, images in zip(net_in_both_formats, (x, channels_first(x)), strict=True)
    )
    for found, expected in zip(first, last, strict=True):
        assert_close(found, expected, "float32")
    for name, gate in gates(net_in_both_formats[1], channels_first(x)).items():
        assert_close(gate, channels_first(gates(net_in_both_formats[0], x)[name]), "float32")
    layout, _ = analysis.highway_layers(net_in_both_formats[1], channels_first(x))
    assert [(call.units, call.places) for call in layout.calls] == [(3, 20), (3, 20)]

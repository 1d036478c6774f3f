"""Padding, dilation, groups and biases of the convolutions, and their batch normalization."""

import inspect

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import (
    PRECISE,
    TOLERANCE,
    array,
    gradients,
    inputs,
    param_slow_on_jax,
    scramble,
    slow_on_jax,
    weights_of,
)

ZEROS = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}
# Shape of x, arguments of the layer, and of the reference.
CASES = [
    ((2, 6, 3), {"padding": "causal"}, {"causal": True}),
    param_slow_on_jax((2, 7, 2), {"padding": "causal", "dilation_rate": 2}, {"causal": True, "dilation": 2}),
    param_slow_on_jax((1, 5, 4, 2), {"dilation_rate": (2, 1)}, {"dilation": (2, 1)}),
    param_slow_on_jax((1, 3, 2, 4), {"groups": 2}, {}),
    param_slow_on_jax((2, 4, 2), {"use_bias": False}, {}),
]


def built(shape, *, kernel_size=3, **arguments):
    layer = ConvHighway(kernel_size, data_format="channels_last", dtype=PRECISE, **ZEROS, **arguments)
    layer.build(shape)
    return scramble(layer)


@pytest.mark.parametrize(("shape", "arguments", "options"), CASES)
def test_outputs_and_gradients_equal_the_reference(shape, arguments, options):
    layer = built(shape, activation="tanh", **arguments)
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    options = {"activation": np.tanh, **options}
    np.testing.assert_allclose(array(layer(x)), reference.forward(x, weights_of(layer), **options), **TOLERANCE)
    assert layer.compute_output_shape(shape) == shape
    expected = reference.gradients(x.astype("float64"), weights_of(layer), upstream, **options)
    for name, gradient in gradients(layer, x, upstream).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_no_output_of_a_causal_layer_depends_on_a_later_step():
    layer = built((1, 8, 2), padding="causal", dilation_rate=2)
    x = inputs(1, 8, 2)
    y, gate = array(layer(x)), array(layer.gates(x))
    x[:, 5:] += 1
    np.testing.assert_array_equal(array(layer(x))[:, :5], y[:, :5])
    np.testing.assert_array_equal(array(layer.gates(x))[:, :5], gate[:, :5])


def test_a_layer_without_a_bias_has_gate_biases_only():
    layer = built((None, 5, 3), use_bias=False)
    assert layer.bias is None
    assert {weight.name for weight in layer.weights} == {"kernel", "transform_kernel", "transform_bias"}
    stack, single = HighwayStack(2, use_bias=False), Highway(use_bias=False)
    for layer in (stack, single):
        layer.build((None, 3))
        scramble(layer)
    assert len(stack.weights) == 3
    x = inputs(4, 3).astype("float32")
    y = x
    for row in range(2):
        single.set_weights([weight[row] for weight in stack.get_weights()])
        y = single(y)
    for training in (False, True):
        np.testing.assert_allclose(array(stack(x, training=training)), array(y), rtol=1e-5, atol=1e-6)


def test_the_bias_has_its_own_regularizer_and_constraint():
    arguments = {"bias_regularizer": keras.regularizers.L2(0.5), "bias_constraint": "non_neg"}
    for layer in (Highway(**arguments, **ZEROS), HighwayStack(2, bias_initializer="ones", **arguments, **ZEROS)):
        layer.build((None, 3))
        scramble(layer)
        (loss,) = layer.losses
        np.testing.assert_allclose(array(loss), 0.5 * np.square(array(layer.bias)).sum(), rtol=1e-5)
        assert array(layer.bias.constraint(layer.bias)).min() >= 0
        assert layer.transform_bias.regularizer is layer.transform_bias.constraint is None


@slow_on_jax
def test_training_gradients_are_those_of_the_published_normalization():
    """PyTorch's BatchNorm2d has epsilon 1e-5 and momentum 0.1, which is 0.9 here. Small inputs make epsilon count."""
    shape = (3, 3, 2, 2)
    arguments = {"batch_normalization": True, "normalization_epsilon": 1e-5, "normalization_momentum": 0.9}
    layer = built(shape, activation="tanh", **arguments)
    x, upstream = inputs(*shape) / 50, inputs(*shape, seed=2)
    before = weights_of(layer)
    options = {"activation": np.tanh, "training": True, "epsilon": 1e-5}
    expected = reference.gradients(x.astype("float64"), before, upstream, **options)
    for name, gradient in gradients(layer, x, upstream, training=True).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=2e-3, atol=1e-3, err_msg=name)
    scramble(layer)
    layer(x, training=True)
    mean = reference.affine(x, before["kernel"]).mean((0, 1, 2))
    moving = weights_of(layer)["moving_mean"]
    np.testing.assert_allclose(moving, 0.9 * before["moving_mean"] + 0.1 * mean, **TOLERANCE)


@pytest.mark.parametrize("value", [{"epsilon": 1e-5}, 1, None, "yes"])
@pytest.mark.parametrize("argument", ["batch_normalization", "use_bias"])
def test_a_switch_that_is_not_a_bool_is_rejected(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be True or False. Received: {argument}="):
        Highway(**{argument: value})


def test_integers_of_numpy_are_integers():
    layer = ConvHighway(np.int64(3), dilation_rate=(np.int32(2), 1), groups=np.uint8(1), depth=np.int64(20))
    assert (layer.kernel_size, layer.dilation_rate, layer.groups) == (3, (2, 1), 1)
    assert type(layer.get_config()["kernel_size"]) is int
    assert HighwayStack(np.int64(3)).depth == 3
    assert Highway(transform_bias="auto", depth=np.int64(20)).initial_transform_bias == -2


@pytest.mark.parametrize(
    ("arguments", "shape", "error"),
    [
        ({"padding": "valid"}, None, r"`padding` must be 'same' or 'causal'\. Received: padding='valid'"),
        (
            {"padding": "causal"},
            (None, 4, 4, 2),
            r"'causal'` is for sequences.* Received: input_shape=\(None, 4, 4, 2\)",
        ),
        ({"groups": 2}, (None, 4, 3), r"`groups` must divide .* Received: groups=2, 3 channels"),
        ({"groups": True}, None, r"`groups` must be a positive integer.* Received: groups=True"),
        ({"dilation_rate": 0}, None, r"`dilation_rate` must be a positive integer.* Received: dilation_rate=0"),
        ({"dilation_rate": (1, 2)}, (None, 4, 2), r"1 here\. Received: dilation_rate=\(1, 2\), input_shape="),
    ],
)
def test_a_convolution_that_does_not_fit_is_rejected(arguments, shape, error):
    with pytest.raises(ValueError, match=error):
        ConvHighway(3, **arguments).build(shape)


@pytest.mark.parametrize(("kind", "required"), [(Highway, ()), (ConvHighway, (3,)), (HighwayStack, (2,))])
def test_the_signature_names_every_argument(kind, required):
    config = set(kind(*required).get_config())
    assert config <= set(inspect.signature(kind).parameters) | {"name", "trainable", "dtype"}


@pytest.mark.parametrize(("kind", "required"), [(Highway, ()), (ConvHighway, (3,)), (HighwayStack, (2,))])
def test_a_config_of_an_earlier_version_loads(kind, required):
    added = {"padding", "dilation_rate", "groups", "use_bias", "bias_regularizer", "bias_constraint"}
    added |= {"normalization_epsilon", "normalization_momentum"}
    config = kind(*required, name="layer").get_config()
    earlier = {name: value for name, value in config.items() if name not in added} | {"seed": None}
    assert kind.from_config(earlier).get_config() == config

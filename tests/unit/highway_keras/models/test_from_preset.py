import keras
import numpy as np
import pytest

from highway_keras.models import Stage, from_preset
from highway_keras.models.presets import PRESETS
from tests.unit.highway_keras.backend import array
from tests.unit.highway_keras.models import reference_nets


def test_dense_presets_take_other_shapes():
    model = from_preset(
        "mnist_dense_50", input_shape=(4, 4, 3), outputs=7, depth=3, width=6, activation="relu", transform_bias=-4.0
    )

    assert (model.input_shape, model.output_shape) == ((None, 4, 4, 3), (None, 7))
    assert model.count_params() == (48 + 1) * 6 + 2 * 2 * (6 + 1) * 6 + (6 + 1) * 7
    np.testing.assert_array_equal(reference_nets.highway_weights(model, "highway_02")["transform_bias"], -4.0)
    assert array(model(np.ones((2, 4, 4, 3), "float32"))).shape == (2, 7)


def test_the_width_of_a_convolutional_net_is_that_of_its_first_stage():
    model = from_preset("cifar10_19", width=4, input_shape=(20, 24, 1), outputs=3)

    assert [model.get_layer(f"entry_{stage}").filters for stage in (1, 2, 3, 4)] == [4, 10, 16, 12]
    assert (model.input_shape, model.output_shape) == ((None, 20, 24, 1), (None, 3))
    assert from_preset("mnist_conv_32", width=16).count_params() == PRESETS["mnist_conv_16"].parameters


def test_the_width_of_a_twin_is_that_of_its_highway_net():
    shape = {"input_shape": (4,), "outputs": 2, "depth": 3, "width": 10}

    assert from_preset("mnist_dense_50_plain", **shape).get_layer("plain_02").units == 14
    assert from_preset("mnist_dense_50_plain", match="width", **shape).get_layer("plain_02").units == 10


def test_none_keeps_the_arguments_of_the_preset():
    none = dict.fromkeys(("input_shape", "outputs", "depth", "width", "activation", "transform_bias", "match"))

    assert from_preset("mnist_conv_16", **none).count_params() == PRESETS["mnist_conv_16"].parameters


def test_the_automatic_bias_depends_on_the_given_depth():
    model = from_preset("factor", depth=20, width=2, transform_bias="auto")

    np.testing.assert_array_equal(reference_nets.highway_weights(model, "highway_19")["transform_bias"], -2.0)


@pytest.mark.parametrize(("name", "near"), [("mnist_conv32", "mnist_conv_32"), ("fitnet-a_plain", "fitnet_a_plain")])
def test_the_error_of_an_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"Did you mean '{near}'.*factor_residual. Received: name='{name}'"):
        from_preset(name)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (
            "cifar10_19",
            {"depth": 30},
            "overrides input_shape, outputs, width, activation, dropout, batch_normalization, stages, hidden, "
            "transform_bias. Received: depth=30",
        ),
        (
            "factor_plain",
            {"transform_bias": -2.0},
            "overrides input_shape, outputs, width, activation, dropout, depth, match. Received: transform_bias=-2.0",
        ),
        ("mnist_dense_50", {"match": "width"}, "Received: match='width'"),
        ("mnist_conv_16", {"initializer": "fan_in_uniform"}, "Received: initializer='fan_in_uniform'"),
        ("factor", {"initializer": "fan_in_uniform"}, "Received: initializer='fan_in_uniform'"),
        ("mnist_dense_50", {"hidden": 5}, "Received: hidden=5"),
        ("mnist_conv_16", {"width": -1}, "at least 1. Received: width=-1"),
        ("mnist_conv_16", {"input_shape": (28, 28)}, r"Received: input_shape=\(28, 28\)"),
        ("mnist_dense_50", {"transform_bias": "automatic"}, "Received: transform_bias='automatic'"),
    ],
)
def test_invalid_overrides_are_rejected(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        from_preset(name, **wrong)


@pytest.mark.parametrize(
    ("name", "rates"),
    [("mnist_conv_16", [0.3] * 4), ("mnist_conv_16_plain", [0.3] * 4), ("mnist_dense_10", [0.3]), ("factor", [0.3])],
)
def test_dropout_replaces_that_of_the_preset(name, rates):
    model = from_preset(name, dropout=0.3)
    assert [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)] == rates
    assert model.count_params() == PRESETS[name].parameters


def test_stages_replace_those_of_the_preset_and_its_width():
    stages = (Stage(6, blocks=(3,), pool=(2, 2)), Stage(9, pool="average"))

    def filters(**overrides):
        model = from_preset("mnist_conv_16", stages=stages, hidden=7, **overrides)
        return [layer.output.shape[-1] for layer in model.layers if layer.weights]

    assert filters() == [6, 6, 9, 7, 10]
    assert filters(width=2) == [2, 2, 3, 7, 10]


def test_a_dropout_of_0_removes_the_layers():
    layers = from_preset("mnist_conv_16", dropout=0.0).layers
    assert not [layer for layer in layers if isinstance(layer, keras.layers.Dropout)]

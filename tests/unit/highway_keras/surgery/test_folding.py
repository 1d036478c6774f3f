"""A folded model computes what the model computes in inference, without batch normalization."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway
from highway_keras.models import Stage, conv
from highway_keras.surgery import folded
from tests.unit.highway_keras.backend import array

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(5, 6, 7, 3)).astype("float32")


def trained(model):
    """Gives a model weights and running statistics as after training."""
    for variable in model.weights:
        if "seed" not in variable.path:
            values = GENERATOR.normal(size=variable.shape) * 0.3
            variable.assign(np.exp(values) if "variance" in variable.path else values)
    return model


def assert_folds(model, x=X, left=0):
    before = array(model(x, training=False))
    small = folded(trained(model))
    np.testing.assert_allclose(array(small(x)), array(model(x, training=False)), rtol=1e-5, atol=1e-5)
    assert not np.allclose(array(small(x)), before, atol=1e-3)
    assert sum(variable.path.endswith("moving_mean") for variable in small.variables) == left
    return small


@pytest.mark.parametrize("kind", ["highway", "plain", "residual"])
def test_a_net_with_normalization_is_folded_whole(kind):
    stages = (Stage(4, blocks=(3, 1), pool=(2, 2)), Stage(5, entry=1, blocks=(3,), pool="average"))
    small = assert_folds(conv((6, 7, 3), 2, stages, kind=kind, batch_normalization=True, hidden=4, activation="tanh"))
    plain = conv((6, 7, 3), 2, stages, kind=kind, hidden=4)
    assert small.count_params() == plain.count_params()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_layers_of_every_form_are_folded(data_format):
    axis = 1 if data_format == "channels_first" else -1
    x = X if axis == -1 else np.moveaxis(X, -1, 1)
    form = {"data_format": data_format, "batch_normalization": True, "activation": "tanh"}
    inputs = keras.Input(x.shape[1:])
    y = ConvHighway(3, carry_gate="separate", name="first", **form)(inputs)
    if not (data_format == "channels_first" and keras.backend.backend() == "tensorflow"):
        y = keras.layers.Conv2D(4, 1, data_format=data_format)(y)
        y = keras.layers.BatchNormalization(axis=axis, center=False)(y)
    small = assert_folds(keras.Model(inputs, ConvHighway(3, **form)(y)), x)
    assert small.get_layer("first").get_config()["carry_gate"] == "separate"


def test_dense_layers_and_nested_models_are_folded():
    inner = keras.Sequential([keras.Input((4,)), Highway(batch_normalization=True)], name="inner")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(scale=False), inner]
    )
    assert_folds(model, X[:, 0, 0])


def test_weights_of_an_activation_are_kept():
    inputs = keras.Input(X.shape[1:])
    y = ConvHighway(3, activation=keras.layers.PReLU(), batch_normalization=True)(inputs)
    y = Highway(activation=keras.layers.PReLU(), batch_normalization=True)(keras.layers.GlobalAveragePooling2D()(y))
    assert_folds(keras.Model(inputs, y))


def test_what_cannot_be_folded_stays():
    inputs = keras.Input((3,))
    first = keras.layers.Dense(4, activation="tanh")(keras.layers.BatchNormalization()(inputs))
    shared = keras.layers.Dense(4)(keras.layers.BatchNormalization()(first))
    y = keras.layers.Add()([shared, keras.layers.BatchNormalization()(shared)])
    assert_folds(keras.Model(inputs, y), X[:, 0, 0], left=3)


def test_a_quantized_layer_is_refused():
    model = keras.Sequential([keras.Input((3,)), Highway(batch_normalization=True, name="one")])
    model.get_layer("one").quantize("int8")
    with pytest.raises(ValueError, match=r"fold the model first\. Received: layer 'one'"):
        folded(model)

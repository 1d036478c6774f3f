"""HighwayConnection: the equation around any block, its mask, training mode, precision, analysis and files."""

import json

import keras
import numpy as np
import pytest

import highway_keras
from highway_keras import Highway, HighwayConnection
from highway_keras.analysis import in_batches, layer_outputs, lesion_layers
from highway_keras.layers import Lesion, lesioned, recording
from tests.unit.highway_keras.backend import PRECISE, array, gradients, inputs, scramble, slow_on_jax
from tests.unit.highway_keras.stacks import assert_close

ZEROS = {"transform_initializer": "zeros"}


def dense(units=4, **arguments):
    return keras.layers.Dense(units, kernel_initializer="zeros", **arguments)


@keras.saving.register_keras_serializable(package="tests")
class Steps(keras.layers.Layer):
    """Doubles its input, zero at masked steps, and keeps what it was called with."""

    supports_masking = True

    def call(self, x, training=None, mask=None):
        self.called = {"training": training, "mask": mask}
        return 2 * x if mask is None else 2 * x * keras.ops.cast(mask, x.dtype)[..., None]


@pytest.mark.parametrize("carry_gate", ["coupled", "separate"])
def test_around_a_dense_layer_it_computes_a_highway_layer(carry_gate):
    highway = Highway(activation="tanh", carry_gate=carry_gate, kernel_initializer="zeros", dtype=PRECISE, **ZEROS)
    block = dense(activation="tanh", dtype=PRECISE)
    connection = HighwayConnection(block, carry_gate=carry_gate, dtype=PRECISE, **ZEROS)
    for layer in (highway, connection):
        layer.build((None, 2, 4))
    scramble(highway)
    for weight in connection.weights:
        weight.assign(getattr(highway, weight.name))
    x, upstream = inputs(3, 2, 4), inputs(3, 2, 4, seed=2)
    assert_close(array(connection(x)), array(highway(x)), PRECISE)
    assert_close(array(connection.gates(x)), array(highway.gates(x)), PRECISE)
    assert_close(gradients(connection, x, upstream), gradients(highway, x, upstream), PRECISE)


def test_the_block_receives_the_training_mode_and_the_mask():
    connection = HighwayConnection(Steps(), **ZEROS)
    x, mask = inputs(2, 3, 4).astype("float32"), np.array([[True, True, True], [True, False, False]])
    x[~mask] = 0
    y = array(connection(keras.layers.Masking()(x), training=True))
    assert connection.block.called["training"] is True
    np.testing.assert_array_equal(array(connection.block.called["mask"]), mask)
    gate = array(connection.gates(x))
    np.testing.assert_allclose(y, gate * 2 * x + (1 - gate) * x, rtol=1e-5)
    assert connection.compute_mask(x, mask) is mask
    without = HighwayConnection(dense(), **ZEROS)  # whose call has no mask
    assert without(x, mask=mask).shape == x.shape


@pytest.mark.parametrize(
    ("block", "shapes"),
    [
        (lambda: dense(5), r"maps \(3, 4\) to \(None, 5\)"),
        (keras.layers.Flatten, r"maps \(3, 2, 4\) to \(None, 8\)"),
        (
            lambda: keras.layers.LSTM(4, return_sequences=True, return_state=True),
            r"maps \(3, 2, 4\) to [(\[]\(None, 2, 4\), ",
        ),
    ],
)
def test_a_block_that_changes_the_shape_is_rejected(block, shapes):
    shape = (3, 4) if "(3, 4)" in shapes.replace("\\", "") else (3, 2, 4)
    with pytest.raises(ValueError, match=rf"one tensor of the shape of its input.* Received: block .*{shapes}"):
        HighwayConnection(block()).build(shape)


def test_a_block_that_is_not_a_layer_is_rejected():
    with pytest.raises(ValueError, match=r"`block` must be a Keras layer or model\. Received: block="):
        HighwayConnection(keras.ops.relu)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_gates_and_blend_are_float32_whatever_the_block_computes_in(policy):
    connection = HighwayConnection(dense(dtype=policy), transform_bias=-1.0003, dtype=policy, **ZEROS)
    x = inputs(2, 4).astype("float32")
    with recording() as recorded:
        y = connection(x)
    gate = recorded[connection.name]
    assert keras.backend.standardize_dtype(gate.dtype) == "float32"
    np.testing.assert_allclose(array(gate), 1 / (1 + np.exp(1.0003)), rtol=1e-6)
    assert keras.backend.standardize_dtype(y.dtype) == policy.removeprefix("mixed_")
    wide = HighwayConnection(dense(dtype=policy), dtype="float32", **ZEROS)
    assert keras.backend.standardize_dtype(wide(x).dtype) == "float32"


def convolutional(name):
    """Returns a block of a convolution with normalization and a highway layer."""
    image = keras.Input((4, 4, 3))
    x = keras.layers.Conv2D(3, 3, padding="same", kernel_initializer="zeros", name=f"{name}_conv")(image)
    x = keras.layers.BatchNormalization(name=f"{name}_norm")(x)
    return keras.Model(image, Highway(name=f"{name}_inner", kernel_initializer="zeros", **ZEROS)(x), name=name)


@pytest.fixture(scope="module")
def net():
    image = keras.Input((4, 4, 3))
    x = HighwayConnection(convolutional("first"), name="one", **ZEROS)(image)
    x = HighwayConnection(keras.layers.Activation("tanh"), name="two", **ZEROS)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return scramble(keras.Model(image, keras.layers.Dense(2, kernel_initializer="zeros")(x)))


@slow_on_jax
def test_gates_and_lesions_reach_connections_and_the_layers_inside(net):
    x = inputs(5, 4, 4, 3).astype("float32")
    gates = highway_keras.gates(net, x)
    assert list(gates) == ["first_inner", "one", "two"]
    np.testing.assert_allclose(gates["one"], array(net.get_layer("one").gates(x)), rtol=1e-5)
    assert list(highway_keras.mean_gates(net, x)) == list(gates)
    labels = np.arange(5) % 2
    lesions = lesion_layers(net, in_batches(x, labels))
    for name, loss in zip(gates, lesions.scores["loss"], strict=True):
        with lesioned({name: Lesion(np.ones(3, bool))}):
            logits = array(net(x, training=False))
        log = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(loss, -log[np.arange(5), labels].mean(), rtol=1e-4)
    connection = net.get_layer("one")
    with lesioned({"one": Lesion(np.array([True, False, True]))}):
        closed = array(connection(x, training=False))
    np.testing.assert_array_equal(closed[..., ::2], x[..., ::2])
    np.testing.assert_allclose(closed[..., 1], array(connection(x, training=False))[..., 1], rtol=1e-5)


def test_a_lesion_inside_a_connection_counts_the_calls_inside_a_spared_one():
    x = inputs(5, 3).astype("float32")
    first, second = (HighwayConnection(Highway(name="inner", **ZEROS), name=name, **ZEROS) for name in ("one", "two"))
    for layer in (first, second):
        layer.build((None, 3))
        scramble(layer)
    with recording(outputs=True) as intact:
        second(first(x))
    closed = np.ones(3, bool)
    lesions = {name: Lesion(~closed, y, np.int32(1)) for name, y in intact.outputs.items()}
    lesions |= {"inner:2": Lesion(closed, intact.outputs["inner:2"], np.int32(0))}
    lesions |= {"two": Lesion(~closed, intact.outputs["two"], np.int32(0))}
    with lesioned(lesions):
        y = array(second(first(x)))
    with lesioned({"inner": Lesion(closed)}):
        expected = array(second(array(intact.outputs["one"])))
    np.testing.assert_allclose(y, expected, rtol=1e-5)


@slow_on_jax
def test_layers_inside_a_layer_of_the_same_name_are_measured_like_those_of_another_name():
    def around(name, inside):
        image = keras.Input((3,))
        inner = keras.Sequential([Highway(name=inside, kernel_initializer="zeros", **ZEROS)])
        x = HighwayConnection(inner, name=name, **ZEROS)(image)
        return scramble(keras.Model(image, keras.layers.Dense(2, kernel_initializer="zeros")(x)))

    x, labels = inputs(5, 3).astype("float32"), np.arange(5) % 2
    same, other = around("c", "c"), around("outer", "inner")
    found, expected = (lesion_layers(net, in_batches(x, labels)) for net in (same, other))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, same(x))
    np.testing.assert_allclose(found.intact["loss"], array(loss), rtol=1e-5)
    np.testing.assert_allclose(found.scores["loss"], expected.scores["loss"], rtol=1e-6)
    for read in (highway_keras.gates, highway_keras.mean_gates, layer_outputs):
        found, expected = read(same, x), read(other, x)
        assert (list(found), list(expected)) == (["c:2", "c"], ["inner", "outer"])
        np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-6)


@slow_on_jax
def test_a_saved_connection_computes_the_same(net, tmp_path):
    net.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    x = inputs(3, 4, 4, 3).astype("float32")
    np.testing.assert_array_equal(array(loaded(x)), array(net(x)))
    config = json.loads(json.dumps(net.get_layer("one").get_config()))
    for _ in range(2):  # the config is only read
        assert json.loads(json.dumps(HighwayConnection.from_config(config).get_config())) == config


def test_normalization_in_the_block_follows_the_training_mode():
    connection = HighwayConnection(convolutional("block"), **ZEROS)
    x = 3 + inputs(6, 4, 4, 3).astype("float32")
    connection.build((None, 4, 4, 3))
    scramble(connection)
    mean = array(connection.block.get_layer("block_norm").moving_mean)
    apart = array(connection(x, training=True)) - array(connection(x, training=False))
    assert np.abs(apart).max() > 1e-3
    assert not np.allclose(array(connection.block.get_layer("block_norm").moving_mean), mean)

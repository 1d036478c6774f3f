"""The fused batch normalization equals Keras's own, and is used only where it saves time."""

import keras
import numpy as np
import pytest

from highway_keras.layers import normalization
from highway_keras.layers.normalization import FusedBatchNormalization
from tests.unit.highway_keras.backend import BACKEND, array, scramble

if BACKEND == "tensorflow":
    import tensorflow as tf

on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends fuse by themselves")
# Numbers of channels of TensorFlow's kernel and of XLA.
KERNEL, XLA = (4, 6, 5, 2 * normalization.VECTOR), (4, 6, 5, normalization.VECTOR - 3)
BITS = {"float32": 18, "mixed_float16": 10, "mixed_bfloat16": 7}


@pytest.fixture
def calls(monkeypatch):
    """Records the calls of `normalized`."""
    made = []
    own = normalization.normalized
    monkeypatch.setattr(normalization, "normalized", lambda *arguments: made.append(1) or own(*arguments))
    normalization._differentiable.cache_clear()
    yield made
    normalization._differentiable.cache_clear()


def pair(shape, dtype="float32", **arguments):
    """Returns the layer and Keras's own, with the same random weights."""
    layers = [
        kind(momentum=0.9, epsilon=0.01, dtype=dtype, **arguments)
        for kind in (FusedBatchNormalization, keras.layers.BatchNormalization)
    ]
    for layer in layers:
        layer.build((None, *shape[1:]))
        scramble(layer)
    return layers


def maps(shape, dtype="float32", seed=1, mean=2.0):
    # Representable in the narrow format, so that its rounding adds no error.
    x = keras.ops.cast(np.random.default_rng(seed).normal(mean, 1.0, shape), dtype.removeprefix("mixed_"))
    return array(x).astype("float32")


def run_traced(layer, x, upstream, **options):
    """Returns y, the gradients of sum(y * upstream), and the running statistics afterwards."""

    @tf.function
    def step(x):
        x = tf.cast(x, layer.compute_dtype)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, **options)
            loss = tf.reduce_sum(tf.cast(y, "float32") * upstream)
        return y, tape.gradient(loss, [x, *[variable.value for variable in layer.trainable_variables]])

    y, gradients = step(tf.constant(x))
    return [array(value) for value in (y, *gradients, *layer.non_trainable_variables)]


def assert_near(found, expected, bits):
    """Asserts equality up to rounding to `bits` bits, relative to the largest value."""
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - other).max() <= 2.0**-bits * np.abs(other).max()


@pytest.mark.parametrize("shape", [KERNEL, XLA], ids=["kernel", "xla"])
@pytest.mark.parametrize("training", [True, False])
def test_it_computes_what_keras_computes(shape, training):
    ours, own = pair(shape)
    x = maps(shape)
    found, expected = (array(layer(x, training=training)) for layer in (ours, own))
    assert_near([found], [expected], 18)
    assert_near(map(array, ours.weights), map(array, own.weights), 18)


@on_tensorflow
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("shape", [KERNEL, XLA, (40, 3, 32), (40, 2, 3), (2, 4, 3, 4, 16), (2, 4, 3, 4, 5)], ids=str)
def test_fused_training_equals_keras_own(calls, shape, dtype):
    ours, own = pair(shape, dtype)
    x, upstream = maps(shape, dtype), maps(shape, dtype, seed=2, mean=0.0)
    found = run_traced(ours, x, upstream)
    assert calls
    assert found[0].shape == shape
    assert_near(found, run_traced(own, x, upstream), BITS[dtype])


@on_tensorflow
@pytest.mark.parametrize("shape", [KERNEL, XLA], ids=["kernel", "xla"])
def test_the_gradient_equals_that_in_float64(calls, shape):
    ours, _ = pair(shape)
    _, exact = pair(shape, "float64")
    x, upstream = maps(shape), maps(shape, seed=2, mean=0.0)
    found = run_traced(ours, x, upstream)
    assert calls
    exact.set_weights([array(weight) for weight in pair(shape)[0].weights])
    with tf.GradientTape() as tape:
        wide = tf.constant(x, "float64")
        tape.watch(wide)
        loss = tf.reduce_sum(exact(wide, training=True) * upstream)
    expected = tape.gradient(loss, [wide, exact.gamma.value, exact.beta.value])
    assert_near(found[1:4], map(array, expected), 18)


@on_tensorflow
@pytest.mark.parametrize("arguments", [{"axis": 1}, {"scale": False}, {"center": False}, {"dtype": "float64"}], ids=str)
def test_other_forms_are_left_to_keras(calls, arguments):
    ours, own = pair(KERNEL, **arguments)
    x, upstream = maps(KERNEL), np.ones(KERNEL, "float32")
    assert_near(run_traced(ours, x, upstream), run_traced(own, x, upstream), 20)
    assert not calls


@on_tensorflow
def test_vectors_and_masked_frozen_eager_and_growing_maps_are_left_to_keras(calls):
    shape = (4, 8, 16)
    ours, own = pair(shape)
    x, mask = maps(shape), tf.constant(np.arange(8) < [[8], [5], [3], [1]])
    found, expected = (run_traced(layer, x, np.ones(shape, "float32"), mask=mask) for layer in (ours, own))
    assert_near(found, expected, 20)
    ours(x, training=True)
    tf.function(lambda x: ours(x, training=True), input_signature=[tf.TensorSpec((None, None, 16))])(x)
    before = array(ours.moving_mean)
    ours.trainable = False
    run_traced(ours, x, np.ones(shape, "float32"))
    np.testing.assert_array_equal(array(ours.moving_mean), before)
    run_traced(pair((40, 32))[0], maps((40, 32)), np.ones((40, 32), "float32"))
    assert not calls


@on_tensorflow
@pytest.mark.parametrize("channels", [16, 5])
def test_a_model_trains_in_fit_with_a_smaller_last_batch(calls, channels):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 2))
    x = FusedBatchNormalization(momentum=0.5)(keras.layers.Conv2D(channels, 3, use_bias=False)(inputs))
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Activation("relu")(x))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
    images = maps((20, 6, 6, 2))
    history = model.fit(images, images.mean((1, 2, 3)), batch_size=8, epochs=8, verbose=0)
    assert calls
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    assert model.evaluate(images, images.mean((1, 2, 3)), verbose=0) < history.history["loss"][0]


def test_it_is_saved_with_its_arguments(tmp_path):
    inputs = keras.Input((4, 4, 3))
    model = keras.Model(inputs, FusedBatchNormalization(momentum=0.9, epsilon=0.01, name="norm")(inputs))
    scramble(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.get_layer("norm")) is FusedBatchNormalization
    assert loaded.get_layer("norm").get_config() == model.get_layer("norm").get_config()
    np.testing.assert_array_equal(array(loaded(maps((2, 4, 4, 3)))), array(model(maps((2, 4, 4, 3)))))

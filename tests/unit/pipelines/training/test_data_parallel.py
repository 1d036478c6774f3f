"""Training on two devices equals that on one. The nets train on JAX; on other backends, these tests are skipped."""

from functools import cache

import keras
import numpy as np
import pytest

import highway_keras
from pipelines.training.data_parallel import DataParallelModel, Replicas
from pipelines.training.divided_dropout import divided
from pipelines.training.steps_per_execution import MultiStepModel

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="trains on JAX alone")
BATCH, BATCHES = 16, 4


def convolutions(x):
    x = keras.layers.Conv2D(4, 3, activation="relu", padding="same")(keras.layers.Reshape((6, 6, 1))(x))
    x = highway_keras.ConvHighway(3, activation="relu")(keras.layers.BatchNormalization(momentum=0.5)(x))
    return keras.layers.Flatten()(keras.layers.Dropout(0.3)(x))


def dropping(x):
    x = keras.layers.SpatialDropout2D(0.3)(keras.layers.Conv2D(4, 3)(keras.layers.Reshape((6, 6, 1))(x)))
    x = keras.layers.Dropout(0.3, noise_shape=(None, 1, 4, 4))(x)
    return keras.layers.Dropout(0.3)(keras.layers.Flatten()(highway_keras.ConvHighway(3)(x)))


def stack(x):
    x = keras.layers.Dense(8, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))(x)
    return keras.layers.Dropout(0.3)(highway_keras.HighwayStack(3, activation="tanh")(x))


@cache
def fitted(features, devices, steps_per_execution=1, by_parts=True):
    """Returns a trained model, its logs, and its scores on examples that two devices do not divide."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((36,))
    model = keras.Model(inputs, keras.layers.Dense(4)(features(inputs)))
    parts = divided(model) if by_parts else None
    if devices and parts:
        model = MultiStepModel(parts.input, parts.output, devices=devices)
    elif devices:
        model = DataParallelModel(model.input, model.output, devices=devices)
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH * BATCHES + 1, 36)).astype("float32")
    y = np.abs(x[:, :4]).argmax(1)
    weights = random.uniform(0.5, 1.5, len(x)).astype("float32")
    history = model.fit(
        x[:-1],
        y[:-1],
        sample_weight=weights[:-1],
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
        validation_data=(x, y),
    )
    return model, history.history


def teardown_module():
    fitted.cache_clear()


@pytest.mark.parametrize(
    ("features", "steps", "by_parts"),
    [(convolutions, 1, True), (dropping, 1, True), (dropping, 2, True), (stack, 1, False), (stack, 3, True)],
)
def test_the_numbers_are_those_of_one_device(features, steps, by_parts):
    one, history = fitted(features, None)
    two, others = fitted(features, 2, steps, by_parts)
    assert history.keys() == others.keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, values in history.items():
        np.testing.assert_allclose(others[name], values, rtol=1e-4, err_msg=name)
    for left, right in zip(one.variables, two.variables, strict=True):
        np.testing.assert_allclose(right.numpy(), left.numpy(), rtol=1e-3, atol=1e-5, err_msg=left.path)
    assert int(two.optimizer.iterations) == 2 * BATCHES


def test_all_devices_are_used():
    import jax

    model, _ = fitted(stack, 2)
    assert model.trainable_variables[0].value.sharding.device_set == set(jax.devices()[:2])


def test_arrays_are_divided_and_copied():
    replicas = Replicas(2)
    rows = np.arange(8.0).reshape(2, 4)
    assert [part.data.shape for part in replicas.divided(rows).addressable_shards] == [(1, 4)] * 2
    assert [part.data.shape for part in replicas.divided(rows, axis=1).addressable_shards] == [(2, 2)] * 2
    (copied,) = replicas.copied([rows])
    assert copied.sharding.device_set == set(replicas.local)
    assert replicas.own(copied) is copied


class Zeroing(keras.callbacks.Callback):
    """Sets the first weights to zero after the first step of each epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.model.jax_state_sync()
            self.model.trainable_variables[0].assign(np.zeros((36, 2)))


@pytest.mark.parametrize(("callbacks", "copies"), [([], 2), ([Zeroing()], 4)])
def test_the_state_is_copied_to_the_devices_only_after_changes(monkeypatch, callbacks, copies):
    calls = []
    copied = Replicas.copied
    monkeypatch.setattr(Replicas, "copied", lambda self, tree: calls.append(tree) or copied(self, tree))
    inputs = keras.Input((36,))
    model = DataParallelModel(inputs, keras.layers.Dense(2)(inputs), devices=2)
    model.compile(keras.optimizers.SGD(0.0), "mean_squared_error")
    model.fit(np.ones((64, 36)), np.ones((64, 2)), batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    assert len(calls) == copies
    assert bool(np.any(model.trainable_variables[0].numpy())) is not bool(callbacks)


def test_nets_with_other_state_are_not_divided():
    inputs = keras.Input((36,))
    dense = keras.layers.Dense(4)
    net = keras.Model(inputs, keras.layers.Dropout(0.5)(dense(inputs)))
    assert divided(net)
    dense.trainable = False
    assert divided(net) is None
    nested = keras.Sequential([inputs, keras.Sequential([keras.Input((36,)), keras.layers.Dropout(0.5)])])
    assert divided(nested) is None


def test_divided_dropout_does_nothing_outside_training():
    inputs = keras.Input((36,))
    net = divided(keras.Model(inputs, keras.layers.Dropout(0.5)(inputs)))
    x = np.ones((3, 36), np.float32)
    np.testing.assert_array_equal(net(x), x)
    np.testing.assert_array_equal(net.predict(x, verbose=0), x)

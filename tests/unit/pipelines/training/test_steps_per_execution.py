from functools import cache

import keras
import numpy as np
import pytest

import highway_keras
from pipelines.core.config import ModelConfig
from pipelines.training import net
from pipelines.training.data_parallel import DataParallelModel
from pipelines.training.steps_per_execution import FEWEST_LAYERS, MOST_UNITS, MultiStepModel, device_count
from tests.toy_data import ToyData, toy_config

BATCH = 64
on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="trains on JAX alone")


@pytest.mark.parametrize(
    ("batch_size", "available", "taken"),
    [(128, 1, 1), (128, 2, 2), (128, 3, 2), (128, 64, 4), (100, 64, 2), (96, 3, 3), (97, 64, 1), (20, 8, 1), (1, 8, 1)],
)
def test_a_batch_is_divided_evenly_and_not_too_finely(batch_size, available, taken):
    assert device_count(batch_size, available) == taken
    assert device_count(batch_size, available, (FEWEST_LAYERS, MOST_UNITS)) == taken
    assert device_count(batch_size, available, (FEWEST_LAYERS - 1, MOST_UNITS)) == 1
    assert device_count(batch_size, available, (FEWEST_LAYERS, MOST_UNITS + 1)) == 1


@on_jax
def test_a_resumed_run_has_the_devices_of_its_record():
    data = ToyData().describe("toy")
    config = toy_config(batch_size=BATCH, model=ModelConfig(preset="mnist_dense_10"))
    built = net.build(config, data, "float32")

    def compiled(**options):
        return net.compiled(built, config, "float32", 10, False, **options).devices

    assert (compiled(), compiled(devices=2), compiled(devices=1), compiled(devices=64)) == (1, 2, 1, 2)


@on_jax
def test_a_net_of_ones_own_is_divided_by_xla():
    data = ToyData().describe("toy")
    config = toy_config(batch_size=BATCH, model=ModelConfig(preset="mnist_dense_50", depth=20, width=8))
    own = config.model_copy(update={"model": ModelConfig(preset="mynets:deep")})

    built = net.build(config, data, "float32")

    def compiled(config, **options):
        return net.compiled(built, config, "float32", 10, False, **options)

    divided = compiled(config)
    assert (type(divided), divided.devices) == (MultiStepModel, 2)
    undivided = compiled(own)
    assert (type(undivided), undivided.devices) == (MultiStepModel, 1)
    assert type(compiled(own, devices=2)) is DataParallelModel


def fitted(multi_step, steps_per_execution=1, epochs=3, batches=6, dropout=0.0):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((20,))
    x = keras.layers.Dense(8, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))(inputs)
    x = keras.layers.Dropout(dropout)(x) if dropout else x
    outputs = keras.layers.Dense(4)(highway_keras.HighwayStack(5, activation="tanh")(x))
    model = MultiStepModel(inputs, outputs, devices=2) if multi_step else keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    random = np.random.default_rng(0)
    # The last validation batch has a single example, which cannot be divided among devices.
    x, validation = (random.normal(size=(count, 20)).astype("float32") for count in (BATCH * batches, BATCH + 1))
    history = model.fit(
        x,
        np.abs(x[:, :4]).argmax(1),
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        validation_data=(validation, np.abs(validation[:, :4]).argmax(1)),
    )
    return model, history.history


fitted_once = cache(fitted)


def teardown_module():
    fitted_once.cache_clear()


@on_jax
# With dropout there is one device, and gradients are not exchanged.
@pytest.mark.parametrize(("small", "dropout"), [(0, 0.0), (100, 0.0), (10**6, 0.0), (100, 0.1)])
def test_the_numbers_are_those_of_single_steps(monkeypatch, small, dropout):
    monkeypatch.setattr("pipelines.training.steps_per_execution.SMALL", small)
    one, history = fitted_once(multi_step=False, dropout=dropout)
    several, others = fitted(multi_step=True, steps_per_execution=3, dropout=dropout)
    assert history.keys() == others.keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, values in history.items():
        np.testing.assert_allclose(others[name], values, rtol=1e-4, err_msg=name)
    for left, right in zip(one.get_weights(), several.get_weights(), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-3, atol=1e-5)
    assert int(several.optimizer.iterations) == 18


@on_jax
def test_a_repetition_is_bit_identical():
    (one, history), (other, again) = (fitted(multi_step=True, steps_per_execution=3) for _ in range(2))
    assert history == again
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


@on_jax
def test_all_devices_are_used():
    import jax

    model, _ = fitted_once(multi_step=True, steps_per_execution=4, epochs=2)
    assert model.trainable_variables[0].value.sharding.device_set == set(jax.devices()[:2])


@on_jax
def test_an_execution_that_the_data_do_not_fill_is_shorter():
    model, _ = fitted_once(multi_step=True, steps_per_execution=4, epochs=2)
    assert int(model.optimizer.iterations) == 12

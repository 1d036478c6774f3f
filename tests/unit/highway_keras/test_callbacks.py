"""MeanGates adds the mean gates of each epoch to the logs of `fit`."""

import csv

import keras
import numpy as np

from highway_keras import Highway, HighwayStack, mean_gates
from highway_keras.callbacks import MeanGates
from tests.unit.highway_keras.backend import array, compiles, slow_on_jax

X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(20, 1))


def model_of(*layers):
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@slow_on_jax
def test_each_epoch_logs_the_gates_of_its_own_weights():
    model = model_of(Highway(name="a"), HighwayStack(2, name="b"))
    measured = []

    class Measure(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            measured.append(mean_gates(self.model, X[:8]))

    history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[MeanGates(X[:8]), Measure()]).history
    for name in ("a", "b_01", "b_02"):
        logged = history[f"gate/{name}"]
        np.testing.assert_allclose(logged, [each[name] for each in measured], rtol=1e-6)
        assert len(set(logged)) == 2


@slow_on_jax
def test_the_csv_log_has_the_gates(tmp_path):
    model, log = model_of(Highway(name="a")), tmp_path / "log.csv"
    history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[MeanGates(X), keras.callbacks.CSVLogger(log)]).history
    with log.open() as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["gate/a"]) for row in rows], history["gate/a"], rtol=1e-6)


@compiles
def test_the_callback_compiles_once_for_all_epochs():
    traces = []

    class Counted(Highway):
        def call(self, inputs, training=None, mask=None):
            traces.append(training)
            return super().call(inputs, training=training, mask=mask)

    model = model_of(Counted())
    counts = []
    count = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: counts.append(traces.count(False)))
    callback = MeanGates(X, batch_size=20)
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[callback, count])
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[callback, count])
    assert counts[0] > 0
    assert set(counts) == {counts[0]}


@slow_on_jax
def test_training_is_the_same_with_and_without_the_callback():
    weights = []
    for callbacks in ([], [MeanGates(X)]):
        keras.utils.set_random_seed(3)
        model = model_of(Highway(dropout=0.5), keras.layers.Dropout(0.2))
        model.fit(X, Y, epochs=2, batch_size=5, verbose=0, callbacks=callbacks)
        weights.append([array(weight) for weight in model.weights])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_without_highway_layers_logs_no_gates():
    history = model_of().fit(X, Y, epochs=1, verbose=0, callbacks=[MeanGates(X)]).history
    assert list(history) == ["loss"]


@slow_on_jax
def test_a_callback_can_be_reused_for_another_model():
    callback = MeanGates(X)
    for name in ("a", "b"):
        history = model_of(Highway(name=name)).fit(X, Y, epochs=1, verbose=0, callbacks=[callback]).history
        assert sorted(history) == [f"gate/{name}", "loss"]

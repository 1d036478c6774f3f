import keras
import numpy as np
import pytest

from highway_keras import Highway, mean_gates
from pipelines.core.optimizers import SGD
from pipelines.training import optimizers
from pipelines.training.callbacks import AveragedGates


@pytest.mark.parametrize("ema", [None, 0.9])
def test_gates_are_those_of_the_weights_that_are_saved(ema):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), Highway(name="first")])
    model.compile(optimizers.build(SGD(ema=ema), 1.0), "mse")
    x, y = np.random.default_rng(0).normal(size=(2, 20, 4)).astype("float32")
    logged = model.fit(x, y, epochs=2, verbose=0, callbacks=[AveragedGates(x)]).history["gate/first"]
    assert logged[0] != logged[1]
    # `fit` ends by replacing the weights with their average.
    assert mean_gates(model, x) == {"first": pytest.approx(logged[1])}

"""Unusual models and inputs work in analyses, or raise one clear error."""

import keras
import numpy as np
import pytest
from keras import layers

import highway_keras
from highway_keras import Highway, gates, mean_gates
from highway_keras.analysis import GateModel, classification, gate_statistics, gradient_norms, lesion_layers, signatures
from tests.unit.highway_keras.analysis.small_nets import ZEROS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 4)).astype("float32"), np.array([0, 1, 2, 0, 1])


class Cell(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.highway = Highway(name="h", **ZEROS)
        self.state_size = 4

    def build(self, shape):
        self.highway.build(shape)

    def call(self, inputs, states):
        y = self.highway(inputs + states[0])
        return y, [y]


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.highway = Highway(name="h", **ZEROS)
        self.last = layers.Dense(3, kernel_initializer="zeros")

    def call(self, x):
        return self.last(self.highway(x))


def recurrent(**arguments):
    return keras.Sequential([keras.Input((3, 4)), layers.RNN(Cell(), **arguments), layers.Dense(3)])


def net():
    return keras.Sequential([keras.Input((4,)), Highway(name="h", **ZEROS), layers.Dense(3)])


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch does not trace loops")
@pytest.mark.parametrize("read", [gates, lambda model, x: lesion_layers(model, (x, Y))], ids=["gates", "lesions"])
def test_a_layer_in_the_loop_of_an_rnn_is_rejected(read):
    model = recurrent()
    weights = model.get_weights()
    with pytest.raises(ValueError, match=r"inside a loop .* unroll=True"):
        read(model, RNG.normal(size=(5, 3, 4)).astype("float32"))
    assert all(map(np.array_equal, model.get_weights(), weights))


def test_the_steps_of_an_unrolled_rnn_are_calls():
    assert list(gates(recurrent(unroll=True), np.zeros((2, 3, 4), "float32"))) == ["h", "h:2", "h:3"]


@pytest.mark.parametrize(
    "read",
    [
        lambda model: mean_gates(model, X).keys(),
        lambda model: gate_statistics(model, (X, Y), 3).layout.layers,
        lambda model: lesion_layers(model, (X, Y), classification).layout.layers,
        lambda model: [name for name in gradient_norms(model, X, Y, classification) if name == "h"],
    ],
    ids=["gates", "statistics", "lesions", "gradients"],
)
def test_a_subclassed_model_that_was_never_called_is_built(read):
    assert list(read(Subclassed())) == ["h"]


def test_gates_are_read_from_batches_with_labels():
    model = net()
    batches = [(X[:3], Y[:3]), (X[3:], Y[3:], np.ones(2))]
    reader = GateModel(model)
    expected = reader.read(X, 3)["h"]
    for each in (batches, (X, Y), (X, Y, np.ones(5))):
        np.testing.assert_allclose(reader.read(each, 3)["h"], expected, rtol=1e-5)


def two_inputs():
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    y = Highway(name="h", transform_initializer="zeros")(first + second)
    return keras.Model([first, second], layers.Dense(3)(y))


@pytest.mark.parametrize("x", [[X, 2 * X], (X, 2 * X), {"first": X, "second": 2 * X}], ids=["list", "tuple", "dict"])
def test_whole_arrays_of_a_model_with_several_inputs_are_cut_into_batches(x):
    model = two_inputs()
    expected = lesion_layers(model, [(x, Y)], classification).scores["loss"]
    for each in ((x, Y), (x, Y, np.ones(5)), (x, Y, None)):
        np.testing.assert_allclose(lesion_layers(model, each, classification).scores["loss"], expected, rtol=1e-5)


def test_a_tuple_of_batches_is_no_tuple_of_arrays():
    model = net()
    expected = lesion_layers(model, (X, Y), classification).scores["loss"]
    for batches in (((X[:3], Y[:3]), (X[3:], Y[3:])), ([X[:3], Y[:3]], [X[3:], Y[3:]])):
        np.testing.assert_allclose(lesion_layers(model, batches, classification).scores["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("read", [gates, mean_gates, signatures, lambda model, x: gradient_norms(model, x, Y[:0])])
def test_empty_inputs_are_rejected(read):
    with pytest.raises(ValueError, match="x contains no examples"):
        read(net(), X[:0])


def test_an_empty_list_of_batches_is_rejected():
    with pytest.raises(ValueError, match="x contains no examples"):
        gates(net(), [])


def test_modules_are_attributes_of_the_analysis_package():
    assert highway_keras.analysis.gates is gates
    assert callable(highway_keras.surgery.stacked)

"""Gates of whole models: values, names and order for every kind of model, in one compiled program."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack, gates, mean_gates
from highway_keras.analysis import GateModel, layer_outputs, signatures
from highway_keras.analysis.compiling import leaf_layers
from highway_keras.surgery import unstacked
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import array, compiles, scramble, slow_on_jax, weights_of

X = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")


def functional():
    inputs = keras.Input((4,))
    x = Highway(name="first", dropout=0.5, seed=0)(inputs)
    x = Highway(name="second", activation="tanh")(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def sequential():
    return keras.Sequential([keras.Input((4,)), Highway(name="first"), Highway(name="second"), keras.layers.Dense(2)])


def nested():
    inputs = keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), Highway(name="second")], name="inner")
    return keras.Model(inputs, inner(Highway(name="first")(inputs)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.layers_in_turn = [Highway(name="first"), Highway(name="second")]

    def call(self, x):  # without `training`, as simple models are written
        for layer in self.layers_in_turn:
            x = layer(x)
        return x


def highways(model):
    return {layer.name: layer for layer in leaf_layers(model) if isinstance(layer, Highway)}


@pytest.mark.parametrize("make", [functional, sequential, nested, Subclassed])
def test_gates_are_read_from_every_kind_of_model(make):
    model = make()
    model(X)
    read = gates(model, X, batch_size=3)
    assert list(read) == ["first", "second"]
    first, second = (highways(model)[name] for name in read)
    kept = 1 - first.dropout
    np.testing.assert_allclose(read["first"], reference.transform(X, weights_of(first)) * kept, rtol=1e-4)
    between = array(first(X, training=False))
    np.testing.assert_allclose(read["second"], reference.transform(between, weights_of(second)), rtol=1e-4)


def test_calls_of_shared_layers_and_equal_names_are_numbered():
    shared = Highway(name="same")
    inner = keras.Sequential([keras.Input((4,)), Highway(name="same")])
    inputs = keras.Input((4,))
    model = keras.Model(inputs, inner(shared(shared(inputs))))
    read = gates(model, X)
    assert list(read) == ["same", "same:2", "same:3"]
    assert not np.allclose(read["same"], read["same:2"])


def test_more_than_ten_layers_are_in_the_order_of_their_calls():
    names = [f"highway_{i}" for i in range(12)]
    model = keras.Sequential([keras.Input((4,)), *[Highway(name=name) for name in names]])
    assert list(gates(model, X)) == names
    assert list(mean_gates(model, X)) == names


@slow_on_jax
@pytest.mark.parametrize("batch_size", [3, 128])
def test_the_mean_weighs_a_partial_last_batch_by_its_size(batch_size):
    model = keras.Sequential([keras.Input((5, 5, 2)), ConvHighway(3, name="conv"), keras.layers.Flatten(), Highway()])
    x = np.random.default_rng(1).normal(size=(7, 5, 5, 2)).astype("float32") * np.arange(1, 8)[:, None, None, None]
    expected = {name: gate.mean(dtype="float64") for name, gate in gates(model, x).items()}
    found = mean_gates(model, x, batch_size=batch_size)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-5)
    assert all(type(value) is float for value in found.values())


def test_a_model_without_highway_layers_has_no_gates():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    assert gates(model, X) == {}
    assert mean_gates(model, X) == {}


def test_gates_are_float32_under_a_mixed_policy():
    model = keras.Sequential([keras.Input((4,)), Highway(dtype="mixed_bfloat16", name="highway")])
    assert gates(model, X)["highway"].dtype == np.float32


@pytest.fixture
def mixed_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.usefixtures("mixed_policy")
def test_inputs_are_not_rounded_to_the_compute_dtype_before_the_model_receives_them():
    # In bfloat16, all of these are 1000.
    x = np.array([[998.0], [999.0], [1001.0], [1002.0]], "float32")
    inputs = keras.Input((1,))
    normalized = keras.layers.Normalization(mean=[1000.0], variance=[1.0], dtype="float32")(inputs)
    layer = Highway(name="highway", dtype="float32", transform_bias=0.0)
    model = keras.Model(inputs, layer(normalized))
    layer.transform_kernel.assign([[1.0]])
    expected = reference.transform(x - 1000, weights_of(layer))
    # Keras batches arrays of another precision, and JAX and PyTorch all arrays.
    for read in (gates(model, x), gates(model, x, batch_size=3), gates(model, x.astype("float64"))):
        np.testing.assert_allclose(read["highway"], expected, rtol=1e-4)
    assert mean_gates(model, x[:1])["highway"] == pytest.approx(expected[0, 0], rel=1e-4)
    np.testing.assert_allclose(signatures(model, x), expected, rtol=1e-4)
    np.testing.assert_allclose(signatures(model, x, per="layer"), expected, rtol=1e-4)
    np.testing.assert_allclose(layer_outputs(model, x)["highway"], array(layer(x - 1000)), rtol=1e-4)


@pytest.mark.usefixtures("mixed_policy")
def test_numbers_of_tokens_may_be_float32_under_a_mixed_policy():
    tokens = np.array([[257, 259, 513, 777, 999]], "float32")
    inputs = keras.Input((5,))
    model = keras.Model(inputs, Highway(name="highway")(keras.layers.Embedding(1001, 4)(inputs)))
    scramble(model)
    expected = gates(model, tokens.astype("int32"))["highway"]
    np.testing.assert_allclose(gates(model, tokens)["highway"], expected, rtol=1e-2)


def test_reading_gates_leaves_all_variables_unchanged():
    model = functional()
    before = [array(variable) for variable in model.variables]
    gates(model, X)
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(array(variable), old)


@compiles
def test_a_second_reading_sees_new_weights_without_compiling():
    traces = []

    class Counted(Highway):
        def call(self, inputs, training=None, mask=None):
            traces.append(1)
            return super().call(inputs, training=training, mask=mask)

    layer = Counted(name="counted")
    reader = GateModel(keras.Sequential([keras.Input((4,)), layer]))
    first = reader.read(X, 7)["counted"]
    made = len(traces)
    layer.transform_bias.assign(np.zeros(4))
    second = reader.read(X, 7)["counted"]
    assert len(traces) == made
    np.testing.assert_allclose(second, reference.transform(X, weights_of(layer)), rtol=1e-4)
    assert not np.allclose(first, second)


@slow_on_jax
def test_reading_and_training_can_alternate():
    keras.utils.set_random_seed(0)
    model = functional()
    model.compile("sgd", "mse")
    for _ in range(2):
        before = gates(model, X)["first"]
        model.fit(X, np.ones((7, 2)), verbose=0)
        assert not np.array_equal(gates(model, X)["first"], before)


@slow_on_jax
def test_the_gates_of_a_stack_are_those_of_its_layers():
    shared = HighwayStack(2, name="shared", activation="tanh")
    inputs = keras.Input((3, 4))
    x = HighwayStack(3, name="deep", activation="tanh")(shared(Highway(name="single")(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(1)(shared(x)))
    layers = unstacked(model)
    examples = np.random.default_rng(1).normal(size=(6, 3, 4)).astype("float32")
    read, expected = gates(model, examples, batch_size=3), gates(layers, examples, batch_size=3)
    assert list(read) == list(expected)
    assert [name for name in read if name.startswith("s")][-1] == "shared_02:2"
    means, expected_means = (mean_gates(each, examples, batch_size=3) for each in (model, layers))
    assert list(means) == list(expected_means) == list(read)
    for name, gate in expected.items():
        assert read[name].shape == gate.shape == examples.shape
        np.testing.assert_allclose(read[name], gate, rtol=1e-4, atol=1e-6)
        assert means[name] == pytest.approx(expected_means[name], rel=1e-4)
        assert means[name] == pytest.approx(gate.mean(), rel=1e-4)


@pytest.mark.slow
def test_reading_and_training_a_stack_can_alternate():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), HighwayStack(2, name="stack"), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    for _ in range(2):
        before = gates(model, X)["stack_01"]
        model.fit(X, np.ones((7, 2)), verbose=0)
        assert not np.array_equal(gates(model, X)["stack_01"], before)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 128])
def test_arrays_are_read_as_predict_reads_them(batch_size):
    program = GateModel(functional(), mean=True)
    expected = program.predict(X, batch_size=batch_size, verbose=0)
    found = program.outputs(X, batch_size)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)

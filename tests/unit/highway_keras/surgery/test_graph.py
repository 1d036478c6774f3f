"""Conversion in all kinds of graphs: which layers form a sequence, and what stays unchanged."""

import keras
import numpy as np
import pytest

from highway_keras import Highway
from highway_keras.surgery import stacked, unstacked
from highway_keras.surgery.stacking import MAX_CHAIN
from tests.unit.highway_keras.backend import MARKS_ON_JAX, array, scramble
from tests.unit.highway_keras.surgery.small_models import X, assert_same, chain, functional, highway, kinds, stack

pytestmark = MARKS_ON_JAX


def test_branches_are_separate_sequences():
    inputs = keras.Input((4,))
    left = highway("l3")(highway("l2")(highway("l1")(inputs)))
    right = stack(2, "right")(highway("r1")(inputs))
    model = scramble(keras.Model(inputs, keras.layers.Concatenate()([left, right, inputs])))
    one, single = stacked(model), unstacked(model)
    assert kinds(one) == {"l1": 3, "right": 2, "r1": "layer"}
    assert set(kinds(single)) == {"l1", "l2", "l3", "r1", "right_01", "right_02"}
    assert_same(one, model)
    assert_same(single, model)


def read_by_an_output(inputs, first, last):
    return keras.Model(inputs, {"end": last, "middle": first})


def read_by_a_layer(inputs, first, last):
    return keras.Model(inputs, keras.layers.Add()([first, last]))


def read_by_an_operation(inputs, first, last):
    return keras.Model(inputs, keras.ops.multiply(first, last))


def read_by_a_shared_layer(inputs, first, last):
    dense = keras.layers.Dense(4)
    return keras.Model(inputs, keras.layers.Add()([dense(inputs), dense(first), last]))


def read_by_an_inner_model(inputs, first, last):
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    return keras.Model(inputs, keras.layers.Add()([inner(first), last]))


@pytest.mark.parametrize(
    "whole",
    [read_by_an_output, read_by_a_layer, read_by_an_operation, read_by_a_shared_layer, read_by_an_inner_model],
)
def test_a_sequence_ends_where_something_else_reads_its_output(whole):
    inputs = keras.Input((4,))
    first = highway("b")(highway("a")(inputs))
    model = scramble(whole(inputs, first, highway("d")(highway("c")(first))))
    one = stacked(model)
    assert kinds(one) == {"a": 2, "c": 2}
    assert_same(one, model)


def test_readers_in_another_model_do_not_end_a_sequence():
    inputs = keras.Input((4,))
    middle = highway("a")(inputs)
    model = scramble(keras.Model(inputs, highway("b")(middle)))
    keras.Model(inputs, keras.layers.Dense(2)(middle))
    assert kinds(stacked(model)) == {"a": 2}


def test_a_shared_layer_and_its_calls_stay():
    shared = highway("shared")
    model = functional(highway("a"), shared, shared, highway("b"))
    assert kinds(stacked(model)) == {"a": "layer", "shared": "layer", "b": "layer"}
    assert_same(stacked(model), model)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Add()([highway("b")(shared(inputs)), shared(keras.ops.sin(inputs))]))
    scramble(model)
    assert kinds(stacked(model)) == {"shared": "layer", "b": "layer"}
    assert_same(stacked(model), model)


def test_a_shared_stack_becomes_a_shared_sequence():
    shared = stack(3, "deep", activation="tanh")
    model = functional(shared, keras.layers.Dense(4), shared)
    single = unstacked(model)
    assert kinds(single) == {"deep_01": "layer", "deep_02": "layer", "deep_03": "layer"}
    assert single.count_params() == model.count_params()
    assert_same(single, model)


def test_models_inside_the_model_are_converted_too():
    innermost = functional(highway("a"), highway("b"))
    inner = keras.Sequential([keras.Input((4,)), stack(2, "deep"), innermost], name="inner")
    shared = keras.Sequential([keras.Input((4,)), highway("a"), highway("b")], name="shared")
    model = functional(inner, shared, shared, stack(2, "deep"))
    single, one = unstacked(model), stacked(model)
    assert list(kinds(single.get_layer("inner"))) == list(kinds(single)) == ["deep_01", "deep_02"]
    assert kinds(one.get_layer("inner").get_layer("whole")) == kinds(one.get_layer("shared")) == {"a": 2}
    assert [layer.name for layer in one.layers] == [layer.name for layer in model.layers]
    for other in (single, one):
        assert_same(other, model)
        assert other.count_params() == model.count_params()
    before = array(model(X))
    scramble(single, seed=1)
    np.testing.assert_array_equal(array(model(X)), before)


def test_calls_with_different_options_form_no_sequence():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, highway("b")(highway("a")(inputs, training=True), training=False))
    assert kinds(stacked(scramble(model))) == {"a": "layer", "b": "layer"}
    assert_same(stacked(model), model)


def test_models_with_named_inputs_and_outputs_are_converted():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    model = scramble(keras.Model({"a": a, "b": b}, {"y": highway("h2")(highway("h1")(a)), "z": stack(2, "deep")(b)}))
    x = {"a": X, "b": 2 * X}
    for other in (stacked(model), unstacked(model)):
        found, expected = other(x), model(x)
        assert set(found) == {"y", "z"}
        for name in found:
            np.testing.assert_allclose(array(found[name]), array(expected[name]), rtol=1e-4, atol=1e-5)


def test_more_layers_than_keras_can_chain_are_rejected():
    parts = [stack(MAX_CHAIN // 2, "first"), stack(MAX_CHAIN // 2 + 1, "second")]
    model = chain(*parts, features=1)
    with pytest.raises(ValueError, match=rf"at most about {MAX_CHAIN} layers.*'first' with depth=200, 'second' with"):
        unstacked(model)


@pytest.mark.slow
def test_the_largest_allowed_number_of_layers_is_chained():
    model = functional(keras.layers.Dense(1), stack(MAX_CHAIN, "deep", transform_bias=-3.0))
    assert len(kinds(unstacked(model))) == MAX_CHAIN


def test_models_without_a_graph_are_rejected():
    class Subclassed(keras.Model):
        def call(self, x):
            return x

    subclassed = Subclassed()
    subclassed(X)
    for model in (subclassed, keras.Sequential([Highway(), Highway()])):
        for convert in (stacked, unstacked):
            with pytest.raises(ValueError, match=r"Only a functional model.* Received: model=<"):
                convert(model)

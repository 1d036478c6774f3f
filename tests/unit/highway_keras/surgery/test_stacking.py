"""Conversion between stacks and single layers: same function, copied weights."""

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack
from highway_keras.surgery import stacked, unstacked
from highway_keras.surgery.stacking import layers_of, stack_of
from tests.unit.highway_keras.backend import MARKS_ON_JAX, array, scramble
from tests.unit.highway_keras.stacks import random_stack
from tests.unit.highway_keras.surgery.small_models import (
    ZEROS,
    X,
    assert_same,
    chain,
    functional,
    highway,
    kinds,
    stack,
)

pytestmark = MARKS_ON_JAX


@pytest.mark.parametrize("form", [chain, functional])
def test_a_chain_is_converted_in_both_directions(form):
    model = form(stack(3, "deep", activation="tanh"), keras.layers.Dense(4, name="dense"), highway("last"))
    single = unstacked(model)
    assert kinds(single) == {"deep_01": "layer", "deep_02": "layer", "deep_03": "layer", "last": "layer"}
    assert_same(single, model)
    again = stacked(single)
    assert kinds(again) == {"deep_01": 3, "last": "layer"}
    assert_same(again, model)
    for other in (single, again):
        assert type(other) is type(model)
        assert other.name == model.name
        assert other.inputs[0].name == "features"
        assert other.count_params() == model.count_params()


def test_each_weight_is_copied_to_its_layer():
    model = functional(stack(3, "deep", activation="tanh"))
    for number, layer in enumerate(unstacked(model).layers[1:]):
        for weight, of_stack in zip(layer.weights, model.layers[1].weights, strict=True):
            assert weight.name == of_stack.name
            np.testing.assert_array_equal(array(weight), array(of_stack)[number])
    rows = [array(weight) for weight in stacked(unstacked(model)).layers[1].weights]
    for row, weight in zip(rows, model.layers[1].weights, strict=True):
        np.testing.assert_array_equal(row, array(weight))


@pytest.mark.parametrize(("convert", "back"), [(stacked, unstacked), (unstacked, stacked)])
def test_weights_are_copies(convert, back):
    model = functional(highway("a"), highway("b"), keras.layers.Dense(4), stack(2, "deep"))
    before = [array(weight) for weight in model.weights]
    scramble(convert(model), seed=1)
    scramble(back(model), seed=2)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), old)
    converted = convert(model)
    expected = array(converted(X))
    scramble(model, seed=3)
    np.testing.assert_array_equal(array(converted(X)), expected)


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 3, 2, 4)])
def test_models_with_inputs_of_any_rank_are_converted(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    inputs = keras.Input((*[None] * (len(shape) - 2), 4))
    model = scramble(keras.Model(inputs, stack(3, "deep")(inputs)))
    single = unstacked(model)
    assert_same(single, model, x)
    assert_same(stacked(single), model, x)


@pytest.mark.parametrize(
    "arguments",
    [
        {"carry_gate": "separate"},
        {"batch_normalization": True},
        {"dropout": 0.1, "seed": 1},
        {"activity_regularizer": "l2"},
    ],
)
def test_layers_with_unsupported_options_are_not_converted(arguments):
    model = functional(highway("a", **arguments), highway("b", **arguments), highway("c"), highway("d"))
    assert kinds(stacked(model)) == {"a": "layer", "b": "layer", "c": 2}
    assert_same(stacked(model), model)


def test_a_layer_of_a_derived_class_is_not_converted():
    @keras.saving.register_keras_serializable(package="tests")
    class Doubled(Highway):
        def call(self, inputs, training=None, mask=None):
            return 2 * super().call(inputs, training=training, mask=mask)

    @keras.saving.register_keras_serializable(package="tests")
    class DoubledStack(HighwayStack):
        def call(self, inputs, training=None, mask=None):
            return 2 * super().call(inputs, training=training, mask=mask)

    model = functional(Doubled(name="a", **ZEROS), highway("b"), highway("c"), DoubledStack(2, name="d", **ZEROS))
    assert kinds(stacked(model)) == {"a": "layer", "b": 2, "d": 2}
    assert_same(stacked(model), model)
    assert kinds(unstacked(model)) == {"a": "layer", "b": "layer", "c": "layer", "d": 2}
    assert_same(unstacked(model), model)


@pytest.mark.parametrize(
    "other",
    [
        {"activation": "tanh"},
        {"gate_activation": "hard_sigmoid"},
        {"kernel_regularizer": "l2"},
        {"transform_constraint": "non_neg"},
        {"dtype": "mixed_bfloat16"},
        {"trainable": False},
    ],
)
def test_sequences_with_different_arguments_become_separate_stacks(other):
    layers = [highway("a"), highway("b"), highway("c", **other), highway("d", **other)]
    one = stacked(functional(*layers))
    assert kinds(one) == {"a": 2, "c": 2}
    config = one.get_layer("c").get_config()
    expected = highway(**other).get_config()
    assert {name: config[name] for name in other} == {name: expected[name] for name in other}


def test_seeds_biases_and_names_may_differ():
    def seeded(seed):
        return keras.initializers.RandomNormal(stddev=0.1, seed=seed)

    layers = [
        Highway(transform_bias=-bias, kernel_initializer=seeded(bias), transform_initializer=seeded(9), seed=bias)
        for bias in (1, 2, 3)
    ]
    model = functional(*layers)
    (found,) = stacked(model).layers[1:]
    assert (found.name, found.depth, found.initial_transform_bias) == (layers[0].name, 3, -2.0)
    assert_same(stacked(model), model)


def test_the_automatic_bias_becomes_a_number():
    layers = layers_of(unused := random_stack(30, (None, 2), transform_bias="auto"))
    assert {layer.initial_transform_bias for layer in layers} == {-3.0}
    assert {layer.get_config()["transform_bias"] for layer in layers} == {-3.0}
    assert stack_of(layers).get_config()["transform_bias"] == unused.initial_transform_bias


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_dtype_and_trainability_are_kept(policy):
    model = functional(stack(2, "deep", dtype=policy, trainable=False), keras.layers.Dense(2))
    single = unstacked(model)
    one = stacked(single).layers[1]
    for layer in (*single.layers[1:3], one):
        assert layer.dtype_policy.name == policy
        assert layer.trainable_weights == []
        assert {weight.dtype for weight in layer.weights} == {"float16" if policy == "float16" else "float32"}
    for weight, expected in zip(one.weights, model.layers[1].weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(expected))


def test_conversion_returns_an_uncompiled_model():
    def own_loss(expected, y):
        return keras.ops.mean(keras.ops.abs(expected - y))

    for form in (chain, functional):
        model = form(stack(2, "deep"), highway("a"), highway("b"))
        model.compile("adam", own_loss)
        for other in (unstacked(model), stacked(model)):
            assert not other.compiled
            assert_same(other, model)
        assert model.compiled


def test_a_converted_model_can_be_trained_saved_and_inspected(tmp_path):
    model = functional(stack(3, "deep", activation="tanh"), keras.layers.Dense(2, name="dense"))
    one = stacked(unstacked(model))
    one.compile("sgd", "mse")
    one.fit(X, X[:, :2], verbose=0)
    one.save(tmp_path / "one.keras")
    assert_same(keras.models.load_model(tmp_path / "one.keras"), one)
    single = unstacked(model)
    for name in ("deep_02", "dense"):
        part = keras.Model(single.input, single.get_layer(name).output)
        assert np.isfinite(array(part(X))).all()


def test_a_model_with_nothing_to_convert_is_copied():
    model = functional(keras.layers.Dense(3), highway("alone"))
    for other in (stacked(model), unstacked(model)):
        assert [layer.name for layer in other.layers] == [layer.name for layer in model.layers]
        assert_same(other, model)


def test_stacking_unlike_layers_is_rejected():
    layers = [highway("a"), highway("b", activation="tanh")]
    for layer in layers:
        layer.build((None, 3))
    with pytest.raises(ValueError, match=r"'a' with .*relu.* and 'b' with .*tanh"):
        stack_of(layers)
    separate = highway("c", carry_gate="separate")
    separate.build((None, 3))
    with pytest.raises(ValueError, match="no carry_gate, batch_normalization, dropout"):
        stack_of([separate, separate])


def test_a_stack_may_be_named():
    layers = layers_of(random_stack(2, (None, 2)))
    assert stack_of(layers, name="named").name == "named"

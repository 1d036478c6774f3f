"""Removal of highway layers: the same as their lesion."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_keras import ConvHighway, HighwayConnection, from_preset
from highway_keras.analysis import highway_layers
from highway_keras.layers.lesion import Lesion, lesioned
from highway_keras.surgery import pruned
from tests.unit.highway_keras.backend import MARKS_ON_JAX, array, scramble
from tests.unit.highway_keras.surgery.small_models import X, assert_same, chain, functional, highway, kinds, stack

pytestmark = MARKS_ON_JAX


def without(model, names, x=X):
    """The outputs of a model whose layers of these names are closed."""
    layout, _ = highway_layers(model, x)
    lesions = {}
    for call in layout.calls:
        closed = np.array([[name in names] * call.units for name in call.layers])
        lesions[call.name] = Lesion(closed[0] if call.depth is None else closed)
    with lesioned(lesions):
        return model(x, training=False)


@pytest.mark.parametrize("form", [chain, functional])
@settings(max_examples=10, deadline=None)
@given(names=st.sets(st.sampled_from(["first", *(f"deep_{number:02}" for number in range(1, 6)), "last"])))
def test_a_pruned_model_computes_what_the_lesioned_one_does(form, names):
    model = form(highway("first"), stack(5, "deep"), keras.layers.Dense(4, name="dense"), highway("last"))
    small = pruned(model, names)
    np.testing.assert_allclose(array(small(X)), array(without(model, names)), rtol=1e-5, atol=1e-6)
    depth = 5 - sum(name.startswith("deep") for name in names)
    expected = {"first": "layer", "deep": depth, "last": "layer"}
    assert kinds(small) == {name: kind for name, kind in expected.items() if kind and name not in names}


def test_other_kinds_of_highway_layers_are_removed():
    image = keras.Input((5, 5, 2))
    x = ConvHighway(3, name="plain")(image)
    x = ConvHighway(3, name="normalized", batch_normalization=True, carry_gate="separate")(x)
    x = HighwayConnection(keras.layers.Conv2D(2, 3, padding="same"), name="around")(x)
    model = scramble(keras.Model(image, keras.layers.GlobalAveragePooling2D()(x)))
    pixels = np.random.default_rng(0).normal(size=(2, 5, 5, 2)).astype("float32")
    for names in ({"plain"}, {"normalized"}, {"around"}, {"plain", "normalized", "around"}):
        small = pruned(model, names)
        expected = array(without(model, names, pixels))
        np.testing.assert_allclose(array(small(pixels)), expected, rtol=1e-5, atol=1e-6)
        assert not names & {layer.name for layer in small.layers}


def test_weights_are_copied():
    model = functional(highway("a"), stack(3, "deep"))
    before = [array(weight) for weight in model.weights]
    scramble(pruned(model, ["deep_02"]), seed=1)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), old)


def test_nested_models_are_pruned():
    inner = functional(highway("inside"), highway("kept"))
    model = chain(inner, stack(2, "deep"))
    small = pruned(model, ["inside", "deep_01"])
    expected = without(model, {"inside", "deep_01"})
    np.testing.assert_allclose(array(small(X)), array(expected), rtol=1e-5, atol=1e-6)
    assert kinds(small.layers[0]) == {"kept": "layer"}


def test_layers_and_models_that_share_the_name_of_a_highway_layer_are_kept():
    def dense(name):
        return keras.layers.Dense(4, activation="tanh", name=name)

    def inner(*layers, name):
        return keras.Sequential([keras.Input((4,)), *layers], name=name)

    plain = dense("inside")
    for model, kept, nested in (
        (functional(inner(highway("body"), plain, name="body")), {"body"}, {"inside"}),
        (functional(highway("body"), inner(dense("body"), name="inner")), {"inner"}, {"body"}),
        (functional(dense("body"), inner(highway("body"), plain, name="inner")), {"body", "inner"}, {"inside"}),
    ):
        small = pruned(model, ["body"])
        np.testing.assert_allclose(array(small(X)), array(without(model, {"body"})), rtol=1e-5, atol=1e-6)
        assert {layer.name for layer in small.layers[1:]} == kept
        assert {layer.name for layer in small.layers[-1].layers} == nested


def test_a_pruned_model_can_be_saved_trained_and_pruned_again(tmp_path):
    model = from_preset("mnist_dense_10", outputs=4, width=6)
    (name,) = kinds(model)
    small = pruned(model, [f"{name}_02", f"{name}_05"])
    small.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    x = np.random.default_rng(0).uniform(size=(8, 28, 28, 1)).astype("float32")
    assert_same(again, small, x)
    small.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(small.fit(x, np.arange(8) % 4, verbose=0).history["loss"]).all()
    assert kinds(pruned(small, [f"{name}_01"])) == {name: kinds(model)[name] - 3}


def test_a_layer_that_cannot_be_removed_is_named():
    shared = highway("shared")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, shared(highway("once")(shared(inputs))))
    with pytest.raises(ValueError, match=r"called more than once cannot be removed. Received: shared"):
        pruned(model, ["shared"])
    with pytest.raises(ValueError, match=r"the graph of the model: dense, other. Choose among: once"):
        pruned(model, ["once", "other", "dense"])
    twice = functional(highway("inside"))
    model = keras.Model(inputs, twice(keras.layers.Dense(4)(twice(inputs))))
    with pytest.raises(ValueError, match=r"more than once cannot be removed. Received: inside"):
        pruned(model, ["inside"])
    model = keras.Model(inputs, highway("h_01")(stack(2, "h")(inputs)))
    with pytest.raises(ValueError, match=r"shares its name with another .* cannot be removed. Received: h_01"):
        pruned(model, ["h_01"])


def test_a_quantized_stack_is_refused():
    model = functional(stack(3, "deep"))
    model.get_layer("deep").quantize("int8")
    with pytest.raises(ValueError, match=r"convert the model first. Received: stack 'deep'"):
        pruned(model, ["deep_01"])

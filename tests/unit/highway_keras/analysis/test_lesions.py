"""A lesion equals the model without the layer, and all lesions share one program."""

import keras
import numpy as np
import pytest

from highway_keras import Highway
from highway_keras.analysis import (
    Lesions,
    classification,
    effective_depth,
    highway_layers,
    in_batches,
    lesion_layers,
    lesion_sets,
    lesion_units,
    regression,
)
from highway_keras.surgery import unstacked
from tests.unit.highway_keras.analysis.small_nets import CLASSES, Subclassed, examples, net, without
from tests.unit.highway_keras.backend import BACKEND, array, compiles, param_slow, param_slow_on_jax, slow_on_jax

EXACT = {"rtol": 1e-4, "atol": 1e-5}


def cross_entropy_and_accuracy(outputs, y):
    """Computes the mean cross-entropy and the accuracy in NumPy."""
    outputs = outputs.astype("float64")
    chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    return -np.log(chances[np.arange(len(y)), y]).mean(), (outputs.argmax(axis=1) == y).mean()


def assert_as_rebuilt(model, found, removed, data):
    x, y = data
    for row, names in enumerate(removed):
        loss, accuracy = cross_entropy_and_accuracy(array(without(model, names)(x)), y)
        np.testing.assert_allclose(found.scores["loss"][row], loss, err_msg=str(names), **EXACT)
        assert found.scores["accuracy"][row] == pytest.approx(accuracy), names


@pytest.mark.parametrize("name", ["dense", "stacked", *map(param_slow_on_jax, ("conv", "subclassed"))])
def test_a_lesion_of_each_layer_equals_the_net_without_it(name):
    model, (x, y) = net(name), examples(name)
    found = lesion_layers(model, in_batches(x, y, 4), classification)  # the last batch has 3
    layers = found.layout.layers
    assert found.examples == 11
    assert found.closed.shape == (len(layers), found.layout.gates)
    assert_as_rebuilt(model, found, [(layer,) for layer in layers], (x, y))
    loss, accuracy = cross_entropy_and_accuracy(array(without(model, ())(x)), y)
    assert found.intact["loss"] == pytest.approx(loss, rel=1e-4)
    assert found.intact["accuracy"] == pytest.approx(accuracy)
    # A lesion without effect would look like an unused layer.
    assert np.all(np.abs(found.cost("loss")) > 1e-4)


@slow_on_jax
@pytest.mark.parametrize("name", ["dense", "stacked", *map(param_slow, ("conv", "subclassed"))])
def test_a_lesion_of_several_layers_equals_the_net_without_them(name):
    model, (x, y) = net(name), examples(name)
    layers = highway_layers(model, x)[0].layers
    closed = np.random.default_rng(0).random((6, len(layers))) < 0.5
    closed[0], closed[1] = True, False
    found = lesion_sets(model, in_batches(x, y, 5), closed, classification)
    removed = [tuple(np.array(layers)[row]) for row in closed]
    assert_as_rebuilt(model, found, removed, (x, y))


@slow_on_jax
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("dense", "mixed_float16"),
        pytest.param("stacked", "mixed_bfloat16", marks=pytest.mark.slow),
        ("conv", "mixed_bfloat16"),
    ],
)
def test_lesions_in_mixed_precision_equal_the_net_without_the_layer(name, policy):
    model, (x, y) = net(name, policy), examples(name)
    found = lesion_layers(model, in_batches(x, y, 4))
    for row, layer in enumerate(found.layout.layers):
        loss, _ = cross_entropy_and_accuracy(array(without(model, (layer,))(x)), y)
        assert found.scores["loss"][row] == pytest.approx(loss, rel=0.05)


@slow_on_jax
def test_a_closed_channel_carries_and_the_others_do_not():
    model, (x, y) = net("conv"), examples("conv", 3)
    found = lesion_units(model, in_batches(x, y))
    assert found.layout.units == (2, 2, 3)
    assert len(found.scores["loss"]) == 7
    # The gate of a channel whose bias is far below 0 is closed.
    for number, (layer, unit) in enumerate(
        (name, unit) for name, units in zip(("c1", "c2"), (2, 2), strict=True) for unit in range(units)
    ):
        bias = model.get_layer(layer).transform_bias
        kernel = model.get_layer(layer).transform_kernel
        before = array(bias), array(kernel)
        shut = np.arange(2) == unit
        bias.assign(np.where(shut, -100, before[0]))
        kernel.assign(np.where(shut, 0, before[1]))
        loss, _ = cross_entropy_and_accuracy(model.predict(x, verbose=0), y)
        bias.assign(before[0])
        kernel.assign(before[1])
        assert found.scores["loss"][number] == pytest.approx(loss, rel=1e-4)


def test_a_stack_is_lesioned_as_its_layers_are():
    model, (x, y) = net("stacked"), examples("stacked")
    one, other = (lesion_units(each, in_batches(x, y, 4)) for each in (model, unstacked(model)))
    assert one.layout.layers == other.layout.layers
    np.testing.assert_allclose(one.scores["loss"], other.scores["loss"], rtol=1e-5)


@slow_on_jax
def test_lesions_of_a_regression_have_squared_errors():
    model, (x, _) = net("stacked"), examples("stacked")
    targets = np.random.default_rng(2).normal(size=(11, CLASSES)).astype("float32")
    found = lesion_layers(model, in_batches(x, targets, 4), regression)
    for row, layer in enumerate(found.layout.layers):
        errors = array(without(model, (layer,))(x)) - targets
        assert found.scores["loss"][row] == pytest.approx(np.square(errors).mean(), rel=1e-4)
    assert set(found.scores) == {"loss"}


@slow_on_jax
def test_one_hot_labels_are_classes():
    model, (x, y) = net("dense"), examples("dense")
    one, other = (lesion_layers(model, in_batches(x, each)) for each in (y, np.eye(CLASSES)[y]))
    np.testing.assert_array_equal(one.scores["accuracy"], other.scores["accuracy"])
    np.testing.assert_array_equal(one.scores["loss"], other.scores["loss"])


@compiles
def test_one_program_serves_all_lesions_and_batches():
    traces = []

    class Counted(Highway):
        def call(self, inputs, training=None, mask=None):
            traces.append(1)
            return super().call(inputs, training=training, mask=mask)

    def calls(batches, closed):
        model = keras.Sequential([keras.Input((4,)), Counted(name="a"), Counted(name="b"), keras.layers.Dense(CLASSES)])
        traces.clear()
        lesion_sets(model, batches, closed)
        return len(traces)

    x, y = examples("dense", 40)
    few = calls(in_batches(x, y, 40), np.ones((2, 2), bool))
    many = calls(in_batches(x, y, 7), np.ones((200, 2), bool))
    assert few == many


def test_progress_is_reported_in_examples():
    reported = []
    lesion_layers(net("dense"), in_batches(*examples("dense"), 4), progress=reported.append)
    assert reported == [4, 8, 11]


def test_a_subclassed_model_is_left_as_it_was():
    model, (x, y) = Subclassed("float32"), examples("subclassed")
    before = model.predict_on_batch(x)
    lesion_layers(model, in_batches(x, y), classification)
    np.testing.assert_array_equal(model.predict_on_batch(x), before)


@pytest.mark.parametrize(
    "closed",
    [np.ones((2, 4), bool), np.ones(3, bool), np.ones((2, 3)), [[0, 1, 2]]],
    ids=["width", "rank", "float", "int"],
)
def test_masks_of_another_shape_or_type_are_rejected(closed):
    with pytest.raises(ValueError, match=r"bool \[lesions, 3\]"):
        lesion_sets(net("dense"), in_batches(*examples("dense")), closed)


def test_models_and_batches_that_cannot_be_scored_are_rejected():
    x, y = examples("dense")
    with pytest.raises(ValueError, match="no highway layers"):
        lesion_layers(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]), in_batches(x, y))
    with pytest.raises(ValueError, match="no examples"):
        lesion_layers(net("dense"), [])
    with pytest.raises(ValueError, match="No batch may be larger than the first"):
        lesion_layers(net("dense"), [(x[:2], y[:2]), (x, y)])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.data needs TensorFlow")
def test_batches_may_be_a_tf_dataset():
    import tensorflow as tf

    model, (x, y) = net("dense"), examples("dense")
    one = lesion_layers(model, tf.data.Dataset.from_tensor_slices((x, y)).batch(4))
    np.testing.assert_allclose(one.scores["loss"], lesion_layers(model, in_batches(x, y, 4)).scores["loss"])


def test_effective_depth_counts_the_layers_that_cost_more_than_the_tolerance():
    found = Lesions(
        layout=None,
        closed=None,
        examples=1,
        intact={"loss": 1.0, "accuracy": 0.5},
        scores={"loss": np.array([1.5, 1.005, 0.5]), "accuracy": np.array([0.2, 0.499, 0.7])},
    )
    assert effective_depth(found, 0.01) == 1
    assert effective_depth(found, 0.001) == 2
    assert effective_depth(found, 0.1, "accuracy") == 1
    assert effective_depth(found, 0.0, "accuracy") == 2


def test_a_cost_that_equals_the_tolerance_is_tolerated():
    scores = {"loss": np.array([1.1, 1.2]), "accuracy": np.array([0.975, 0.9749])}
    found = Lesions(None, None, 10_000, {"loss": 1.0, "accuracy": 0.976}, scores)
    for score, tolerance in {"loss": 0.1, "accuracy": 0.001}.items():
        np.testing.assert_array_equal(found.harmful(tolerance, score), [False, True])
        assert effective_depth(found, tolerance, score) == 1

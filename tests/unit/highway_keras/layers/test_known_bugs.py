"""Known bugs of other highway implementations, one test each."""

import itertools
import json

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.layers import recording
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import BACKEND, array, inputs, param_slow_on_jax, weights_of

LAYERS = {
    "dense": ((3, 6), Highway),
    "2-D": ((2, 5, 5, 4), lambda **o: ConvHighway(3, **o)),
}
both = pytest.mark.parametrize("kind", ["dense", param_slow_on_jax("2-D")])


def random_layer(kind, **options):
    shape, layer = LAYERS[kind]
    return layer(**options), inputs(*shape).astype("float32")


@both
def test_the_gate_bias_is_not_lost(kind):
    layer, x = random_layer(kind, transform_bias=-3.0)
    np.testing.assert_allclose(array(layer.gates(np.zeros_like(x))), reference.sigmoid(-3.0), rtol=1e-5)
    np.testing.assert_array_equal(array(layer.transform_bias), -3.0)


@both
def test_the_gate_bias_is_not_added_to_the_block(kind):
    layer, x = random_layer(kind, transform_bias=-3.0, activation="linear")
    np.testing.assert_array_equal(array(layer(np.zeros_like(x))), 0.0)
    np.testing.assert_array_equal(array(layer.bias), 0.0)


@both
def test_the_gate_has_its_own_kernel(kind):
    layer, x = random_layer(kind, carry_gate="separate")
    gates = array(layer.gates(x))
    kernels = [array(kernel) for kernel in (layer.kernel, layer.transform_kernel, layer.carry_kernel)]
    assert not any(np.allclose(kernels[i], kernels[j]) for i, j in [(0, 1), (0, 2), (1, 2)])
    layer.kernel.assign(kernels[0] + 1)
    layer.carry_kernel.assign(kernels[2] + 1)
    np.testing.assert_array_equal(array(layer.gates(x)), gates)
    layer.transform_kernel.assign(kernels[1] + 1)
    assert not np.allclose(array(layer.gates(x)), gates)


@both
def test_a_separate_carry_gate_starts_open(kind):
    layer, x = random_layer(
        kind, carry_gate="separate", transform_bias=-3.0, activation="linear", kernel_initializer="zeros"
    )
    layer.build(x.shape)
    np.testing.assert_array_equal(array(layer.carry_bias), 3.0)
    layer.carry_kernel.assign(np.zeros(layer.carry_kernel.shape))
    np.testing.assert_allclose(array(layer(x)), reference.sigmoid(3.0) * x, rtol=1e-5)


def test_a_seeded_initializer_draws_different_values_for_the_two_gates():
    layer = Highway(carry_gate="separate", transform_initializer=keras.initializers.HeNormal(seed=1))
    layer.build((None, 6))
    assert not np.allclose(array(layer.carry_kernel), array(layer.transform_kernel))


def kernels(kind, options):
    shape, layer = LAYERS.get(kind, ((3, 6), lambda **o: HighwayStack(3, **o)))
    layer = layer(**options)
    layer.build(shape)
    return layer, [array(weight) for weight in layer.weights if "kernel" in weight.name]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("kind", [*LAYERS, "stack"])
def test_a_shared_initializer_draws_different_values_for_each_kernel(kind, seed):
    shared = keras.initializers.Orthogonal(seed=seed) if kind == "stack" else keras.initializers.HeNormal(seed=seed)
    options = {"kernel_initializer": shared, "transform_initializer": shared}
    if kind != "stack":
        options["carry_gate"] = "separate"
    layer, found = kernels(kind, options)
    rows = [row for kernel in found for row in (kernel if kind == "stack" else [kernel])]
    assert not any(np.allclose(one, other) for one, other in itertools.combinations(rows, 2))
    if seed is not None:  # the config holds the seed, and a copy has two initializers with it
        again = [array(weight) for weight in rebuilt(layer).weights if "kernel" in weight.name]
        np.testing.assert_array_equal(again, found)


def rebuilt(layer):
    copy = type(layer).from_config(layer.get_config())
    copy.build((*[None] * (layer.input_spec.ndim - 1), layer.kernel.shape[-1]))
    return copy


def test_initializers_with_separate_seeds_keep_them():
    seeded = keras.initializers.HeNormal
    options = {"kernel_initializer": seeded(seed=2), "transform_initializer": seeded(seed=1)}
    _, found = kernels("dense", {**options, "carry_gate": "separate"})
    np.testing.assert_array_equal(found[:2], [array(seeded(seed=seed)((6, 6))) for seed in (2, 1)])
    assert not np.allclose(found[2], found[0])


@both
def test_the_carry_path_carries_the_untransformed_input(kind):
    layer, x = random_layer(kind, transform_bias=-40.0)
    np.testing.assert_allclose(array(layer(x)), x, rtol=1e-6)


@both
def test_an_open_transform_gate_transforms(kind):
    # Other implementations gate the carry path, with the opposite sign.
    layer, x = random_layer(kind, transform_bias=15.0)
    np.testing.assert_allclose(array(layer(x)), reference.block(x, weights_of(layer)), rtol=1e-3, atol=1e-3)


@both
@pytest.mark.parametrize("training", [True, False])
def test_dropout_keeps_the_gate_between_0_and_1(kind, training):
    layer, x = random_layer(kind, transform_bias=4.0, dropout=0.6)
    with recording() as recorded:
        layer(x, training=training)
    gate = array(recorded[layer.name])
    assert gate.min() >= 0
    assert gate.max() <= 1


def test_dropout_in_inference_is_the_mean_of_dropout_in_training():
    layer, x = random_layer("dense", transform_bias=0.0, dropout=0.3)
    with recording() as recorded:
        layer(np.tile(x, (5000, 1)), training=True)
    mean = array(recorded[layer.name]).reshape(5000, *x.shape).mean(axis=0)
    np.testing.assert_allclose(mean, array(layer.gates(x)), atol=0.03)


@pytest.mark.parametrize("activation", ["softmax", "log_softmax", "relu", "tanh", "linear", "softplus", "swish"])
def test_invalid_gate_activations_are_rejected(activation):
    with pytest.raises(ValueError, match=r"`gate_activation` must .* Received: gate_activation="):
        Highway(gate_activation=activation)


@both
def test_the_layer_reloads_from_its_config(kind):
    options = {
        "activation": "tanh",
        "gate_activation": "hard_sigmoid",
        "transform_bias": "auto",
        "depth": 15,
        "carry_gate": "separate",
        "kernel_initializer": keras.initializers.RandomUniform(-0.1, 0.1, seed=1),
        "transform_initializer": keras.initializers.GlorotNormal(seed=2),
        "bias_initializer": "ones",
        "kernel_regularizer": keras.regularizers.L2(0.01),
        "transform_regularizer": keras.regularizers.L1(0.02),
        "kernel_constraint": keras.constraints.MaxNorm(2.0),
        "transform_constraint": keras.constraints.NonNeg(),
        "batch_normalization": True,
        "dropout": 0.25,
        "seed": 11,
        "name": "named",
        "dtype": "mixed_bfloat16",
        "trainable": False,
    }
    layer, _ = random_layer(kind, **options)
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert again.get_config() == layer.get_config()
    defaults = random_layer(kind)[0].get_config()
    assert set(options) <= set(config)
    assert [name for name in options if config[name] == defaults[name]] == []
    assert config["transform_bias"] == "auto"


@both
def test_tracing_leaves_no_tensors_in_the_layer(kind):
    layer, x = random_layer(kind, dropout=0.5, kernel_regularizer="l2")
    layer(x, training=True)
    before = contents(layer)
    for batch in (x, x[:1]):  # two shapes, two traces
        traced(layer)(batch)
    assert contents(layer) == before
    layer(x, training=True)  # no leaked tracer is used
    with recording() as recorded:
        layer(x)
    assert list(recorded) == [layer.name]


def contents(layer):
    """Returns the identities of a layer's attributes and of the items of collections."""
    return {
        name: (id(value), [id(item) for item in value] if isinstance(value, (list, tuple, set, dict)) else None)
        for name, value in vars(layer).items()
        if not isinstance(value, (str, int, float))
    }


def traced(layer):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda x: layer(x, training=True))
    if BACKEND == "torch":
        return lambda x: layer(x, training=True)
    import jax

    state = [[v.value for v in layer.trainable_variables], [v.value for v in layer.non_trainable_variables]]
    return jax.jit(lambda x: layer.stateless_call(*state, x, training=True)[0])


@both
def test_every_bias_has_bias_in_its_name(kind):
    # Optimizers with a separate rate for biases find them by name.
    layer, x = random_layer(kind, carry_gate="separate")
    layer(x)
    names = {weight.name for weight in layer.weights}
    assert names == {"kernel", "bias", "transform_kernel", "transform_bias", "carry_kernel", "carry_bias"}
    assert {weight.name for weight in layer.weights if len(weight.shape) == 1} == {n for n in names if "bias" in n}

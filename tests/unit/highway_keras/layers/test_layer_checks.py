"""The checks that Keras runs on each of its own layers (`keras.testing.TestCase.run_layer_test`, which is private).

Configs and files, shapes and dtypes of symbolic and eager calls, numbers of weights, seeds and losses, a training step
that changes every weight, and masks, for every layer and dtype policy.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayConnection, HighwayStack
from tests.unit.highway_keras.backend import BACKEND, array, gradient_tensors, inputs, param_slow_on_jax, scramble

POLICIES = ["float32", *map(param_slow_on_jax, ("mixed_bfloat16", "mixed_float16"))]
POLICIES += ["float64"] if BACKEND != "jax" else []  # JAX needs float64 to be enabled before it starts.


class Case(NamedTuple):
    """A layer, and what Keras counts in it."""

    make: Callable[..., Any]
    shape: tuple[int, ...]
    trainable: int
    fixed: int = 0
    seeds: int = 0
    losses: int = 0


def connection(**arguments):
    block = keras.layers.Dense(3, "tanh", kernel_regularizer="l2", name="block", dtype=arguments.get("dtype"))
    return HighwayConnection(block, **arguments)


def int8_connection(dtype="float32", **arguments):
    block = keras.layers.Dense(3, "tanh", name="block", dtype=f"int8_from_{dtype}")
    return HighwayConnection(block, dtype=dtype, **arguments)


def int8(layer):
    """Returns a layer with int8 kernels, on top of the policy asked for."""
    return lambda dtype="float32", **arguments: layer(dtype=f"int8_from_{dtype}", **arguments)


CASES = {
    "dense": Case(Highway, (3,), trainable=4),
    "dense, all": Case(
        lambda **o: Highway(carry_gate="separate", dropout=0.1, kernel_regularizer="l2", bias_regularizer="l1", **o),
        (2, 3),
        trainable=6,
        seeds=1,
        losses=2,
    ),
    "1-D": Case(lambda **o: ConvHighway(2, padding="causal", use_bias=False, **o), (4, 3), trainable=3),
    "2-D": Case(lambda **o: ConvHighway(3, batch_normalization=True, **o), (4, 3, 3), trainable=5, fixed=2),
    "3-D": Case(lambda **o: ConvHighway(2, dilation_rate=2, **o), (2, 3, 2, 3), trainable=4),
    "stack": Case(lambda **o: HighwayStack(2, transform_regularizer="l2", **o), (3,), trainable=4, losses=1),
    "connection": Case(connection, (2, 3), trainable=4, losses=1),
    "int8": Case(int8(Highway), (3,), trainable=2, fixed=4),
    "int8, 2-D": Case(int8(lambda **o: ConvHighway(2, **o)), (4, 3, 3), trainable=2, fixed=4),
    "int8, stack": Case(int8(lambda **o: HighwayStack(2, **o)), (3,), trainable=2, fixed=4),
    "int8, block": Case(int8_connection, (2, 3), trainable=3, fixed=2),
    "LoRA": Case(lambda **o: HighwayStack(2, lora_rank=1, **o), (3,), trainable=6, fixed=2),
}
CONNECTIONS = [CASES["connection"], CASES["int8, block"]]
INT8 = [case for name, case in CASES.items() if name.startswith("int8")]
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def built(case, **arguments):
    layer = case.make(name="layer", **arguments)
    layer.build((None, *case.shape))
    return layer


def examples(case):
    return inputs(4, *case.shape).astype("float32")


@cases
def test_a_layer_is_rebuilt_from_its_config(case):
    layer = case.make()
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    assert dir(again) == dir(layer)  # no attribute that only one of them has


@cases
def test_weights_seeds_and_losses_are_counted(case):
    layer = built(case)
    seeds = len(layer.non_trainable_variables) - len(layer.non_trainable_weights)
    layer(examples(case))
    found = (len(layer.trainable_weights), len(layer.non_trainable_weights), seeds, len(layer.losses))
    assert found == (case.trainable, case.fixed, case.seeds, case.losses)
    layer.trainable = False
    assert layer.trainable_weights == []


@pytest.mark.parametrize("policy", POLICIES)
@cases
def test_symbolic_and_eager_calls_agree_on_shape_and_dtype(case, policy):
    if policy == "mixed_float16" and case in INT8:
        with pytest.raises(ValueError, match=r"int8.* doesn't work well with compute_dtype='float16'"):
            case.make(dtype=policy)
        return
    layer = case.make(dtype=policy)
    symbolic = layer(keras.KerasTensor((None, *case.shape), dtype="float32"))
    eager = layer(examples(case))
    assert symbolic.shape == (None, *case.shape)
    assert tuple(eager.shape) == (4, *case.shape) == layer.compute_output_shape((4, *case.shape))
    assert symbolic.dtype == keras.backend.standardize_dtype(eager.dtype) == layer.compute_dtype
    assert np.all(np.isfinite(array(eager)))
    assert {weight.dtype for weight in layer.trainable_weights} == {layer.variable_dtype}


@cases
def test_saved_weights_give_the_same_outputs(case, tmp_path):
    image = keras.Input(case.shape)
    model = keras.Model(image, built(case)(image))
    for weight in model.trainable_weights:
        weight.assign(inputs(*weight.shape))
    model.save(tmp_path / "net.keras")
    model.save_weights(tmp_path / "net.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    x = examples(case)
    y = array(model(x))
    np.testing.assert_array_equal(array(loaded(x)), y)
    for weight in loaded.trainable_weights:
        weight.assign(np.zeros(weight.shape))
    loaded.load_weights(tmp_path / "net.weights.h5")
    np.testing.assert_array_equal(array(loaded(x)), y)


@pytest.mark.parametrize("policy", ["float32", param_slow_on_jax("mixed_bfloat16")])
@cases
def test_a_training_step_changes_every_trainable_weight(case, policy):
    if case is CASES["int8, block"] and policy != "float32":
        pytest.skip("on TensorFlow, Keras's own int8 layers have no gradient in bfloat16")
    layer = scramble(built(case, dtype=policy, **({} if case in CONNECTIONS else {"activation": "tanh"})))
    before = [array(weight) for weight in layer.trainable_weights]
    fixed = [array(weight) for weight in layer.non_trainable_weights if "moving" not in weight.name]
    x = examples(case)
    _, *gradients = gradient_tensors(layer, x, np.ones(x.shape, "float32"), training=True)
    keras.optimizers.SGD(1.0).apply(gradients, layer.trainable_variables)
    for weight, old in zip(layer.trainable_weights, before, strict=True):
        assert np.all(np.isfinite(array(weight)))
        assert not np.array_equal(array(weight), old), weight.name
    kept = [array(weight) for weight in layer.non_trainable_weights if "moving" not in weight.name]
    assert all(np.array_equal(new, old) for new, old in zip(kept, fixed, strict=True))


@cases
def test_masks_pass_through(case):
    layer = built(case)
    mask = np.ones((4, *case.shape[:-1]), bool)
    assert layer.supports_masking
    assert layer.compute_mask(examples(case), mask) is mask
    np.testing.assert_allclose(array(layer(examples(case), mask=mask)), array(layer(examples(case))), rtol=1e-6)

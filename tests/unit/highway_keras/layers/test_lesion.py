"""Closed gates carry their input exactly; the others are unchanged."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.layers import Lesion, lesioned, recording
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.analysis.small_nets import ZEROS
from tests.unit.highway_keras.backend import array, inputs, param_slow_on_jax, scramble, weights_of

CLOSED = np.array([True, False, True])


def random_layer(kind, *arguments, shape=(None, 3), **named):
    layer = kind(*arguments, name="layer", **ZEROS, **named)
    layer.build(shape)
    return scramble(layer)


CASES = {
    "dense": lambda policy: (random_layer(Highway, dtype=policy), (5, 3)),
    "steps": lambda policy: (random_layer(Highway, dtype=policy, shape=(None, 2, 3)), (5, 2, 3)),
    "carry": lambda policy: (random_layer(Highway, carry_gate="separate", dtype=policy), (5, 3)),
    "normalized": lambda policy: (random_layer(Highway, batch_normalization=True, dtype=policy), (5, 3)),
    "dropout": lambda policy: (random_layer(Highway, dropout=0.5, seed=0, dtype=policy), (5, 3)),
    "conv": lambda policy: (random_layer(ConvHighway, 3, shape=(None, 4, 4, 3), dtype=policy), (5, 4, 4, 3)),
    "stack": lambda policy: (random_layer(HighwayStack, 1, dtype=policy), (5, 3)),
}


@pytest.mark.parametrize("policy", ["float32", *map(param_slow_on_jax, ("mixed_bfloat16", "mixed_float16"))])
@pytest.mark.parametrize("case", CASES)
def test_closed_units_carry_and_the_others_compute_as_before(case, policy):
    layer, shape = CASES[case](policy)
    x = np.asarray(inputs(*shape), "float32")
    intact = array(layer(x, training=False))
    closed = CLOSED[None] if case == "stack" else CLOSED
    with lesioned({"layer": Lesion(closed)}):
        y = array(layer(x, training=False))
    carried = array(layer(x, training=False)) * 0 + x.astype("float32") if policy == "float32" else None
    np.testing.assert_array_equal(y[..., ~CLOSED], intact[..., ~CLOSED])
    if carried is not None:
        np.testing.assert_array_equal(y[..., CLOSED], carried[..., CLOSED])
    else:
        np.testing.assert_allclose(y[..., CLOSED], x[..., CLOSED], rtol=2**-8)
    assert not np.array_equal(intact[..., CLOSED], y[..., CLOSED])


@pytest.mark.parametrize("h", [np.inf, np.nan])
@pytest.mark.parametrize("case", ["dense", "carry", "conv", "stack"])
def test_a_closed_unit_carries_even_if_h_is_not_finite(case, h):
    layer, shape = CASES[case]("float32")
    layer.activation = lambda z: keras.ops.full_like(z, h)
    x = np.asarray(inputs(*shape), "float32")
    with lesioned({"layer": Lesion(np.ones((1, 3) if case == "stack" else 3, bool))}):
        np.testing.assert_array_equal(array(layer(x, training=False)), x)


def test_a_lesioned_layer_computes_the_equation_with_closed_gates():
    layer, shape = CASES["carry"]("float32")
    x, weights = np.asarray(inputs(*shape), "float32"), weights_of(layer)
    t = np.where(CLOSED, 0, reference.transform(x, weights))
    c = reference.sigmoid(x @ weights["carry_kernel"] + weights["carry_bias"])
    expected = reference.block(x, weights) * t + x * np.where(CLOSED, 1, c)
    with lesioned({"layer": Lesion(CLOSED)}):
        np.testing.assert_allclose(array(layer(x)), expected, rtol=1e-4, atol=1e-5)


def test_each_call_is_lesioned_by_its_own_name():
    layer, shape = CASES["dense"]("float32")
    x = np.asarray(inputs(*shape), "float32")
    once = array(layer(x))
    with lesioned({"layer:2": Lesion(np.ones(3, bool))}):
        np.testing.assert_array_equal(array(layer(layer(x))), once)
    with lesioned({"another": Lesion(np.ones(3, bool))}):
        np.testing.assert_array_equal(array(layer(x)), once)
    np.testing.assert_array_equal(array(layer(x)), once)


def test_known_outputs_are_not_recomputed():
    layer, shape = CASES["dense"]("float32")
    x, known = np.asarray(inputs(*shape), "float32"), np.full((5, 3), 7, "float32")
    for spared in (0, 1):
        with lesioned({"layer": Lesion(CLOSED, known, np.int32(spared))}):
            assert np.all(array(layer(x)) == 7) == bool(spared)


@pytest.mark.parametrize("spared", [0, 1, 3, 4])
def test_a_stack_resumes_from_the_last_known_output(spared):
    stack = random_layer(HighwayStack, 4)
    x = np.asarray(inputs(5, 3), "float32")
    closed = np.zeros((4, 3), bool)
    closed[spared:] = True
    with recording(outputs=True) as intact:
        stack(x)
    known = intact.outputs["layer"] + 1  # differs from what would be computed
    with lesioned({"layer": Lesion(closed, known, np.int32(spared))}):
        y = array(stack(x))
    np.testing.assert_array_equal(y, array(known)[:, spared - 1] if spared else x)


def test_recording_gates_while_some_are_closed_is_rejected():
    layer, shape = CASES["dense"]("float32")
    with recording(), lesioned({}), pytest.raises(RuntimeError, match="recorded while some are closed"):
        layer(inputs(*shape))

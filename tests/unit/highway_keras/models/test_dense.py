import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway_keras import Highway, HighwayStack
from highway_keras.models import dense
from tests.unit.highway_keras.backend import TOLERANCE, array, few_examples, slow_on_jax
from tests.unit.highway_keras.models import reference_nets

FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}
KINDS = ("highway", "plain", "residual")


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_equal_those_of_numpy(kind):
    model = reference_nets.perturb(dense((2, 3, 1), outputs=3, depth=4, width=5, kind=kind, activation="tanh"))
    x = np.random.default_rng(0).normal(size=(7, 2, 3, 1)).astype("float32")

    y = reference_nets.plain_layer(model, "entry", x.reshape(7, 6).astype("float64"), np.tanh)
    for number in (1, 2, 3):
        y = reference_nets.block(model, kind, f"{kind}_{number:02}", y, np.tanh)
    y = reference_nets.plain_layer(model, "logits", y, lambda z: z)

    np.testing.assert_allclose(array(model(x)), y, **FLOAT32)


@few_examples
@given(
    depth=st.integers(1, 6),
    width=st.sampled_from([1, 2, 7]),
    outputs=st.sampled_from([1, 3]),
    features=st.sampled_from([1, 9]),
    kind=st.sampled_from(KINDS),
)
def test_parameters_and_shapes_are_right_at_any_depth_and_width(depth, width, outputs, features, kind):
    model = dense((features,), outputs, depth, width, kind=kind)
    maps = 2 if kind == "highway" else 1

    expected = (features + 1) * width + (depth - 1) * maps * (width + 1) * width + (width + 1) * outputs
    assert model.count_params() == expected
    assert model.output_shape == (None, outputs)
    names = [
        layer for layer in reference_nets.layer_names(model) if layer.startswith(kind) and not layer.endswith("_h")
    ]
    if kind == "highway":
        assert names == ["highway"] * (depth > 1)
        assert [layer.depth for layer in model.layers if isinstance(layer, HighwayStack)] == [depth - 1] * (depth > 1)
    else:
        assert names == [f"{kind}_{number:02}" for number in range(1, depth)]
        assert not any(isinstance(layer, (Highway, HighwayStack)) for layer in model.layers)


def test_a_highway_net_may_be_deeper_than_keras_can_chain_layers():
    model = dense((2,), outputs=1, depth=3000, width=1)

    assert reference_nets.layer_names(model) == ["image", "entry", "highway", "logits"]
    assert model.get_layer("highway").depth == 2999


def test_blocks_can_be_recomputed():
    stacks = [dense((2,), 1, 3, 4, rematerialize=choice).get_layer("highway") for choice in (False, True)]

    assert [stack.rematerialize for stack in stacks] == [False, True]


def test_names_sort_in_order_at_every_depth():
    names = [
        name
        for name in reference_nets.layer_names(dense((2,), 1, depth=102, width=1, kind="plain"))
        if name.startswith("plain")
    ]

    assert names[:2] == ["plain_001", "plain_002"]
    assert names == sorted(names)


def test_gates_start_at_the_bias_and_blocks_with_different_weights():
    model = dense((4,), 2, depth=3, width=6, transform_bias=-3.0)
    first, second = (reference_nets.highway_weights(model, name) for name in ("highway_01", "highway_02"))

    for weights in (first, second):
        np.testing.assert_array_equal(weights["transform_bias"], np.full(6, -3.0))
        np.testing.assert_array_equal(weights["bias"], np.zeros(6))
        assert not np.allclose(weights["kernel"], weights["transform_kernel"])
    assert not np.allclose(first["kernel"], second["kernel"])


@slow_on_jax
@pytest.mark.usefixtures("keras_initial_values")
def test_kernels_start_by_normalized_initialization():
    model = dense((30,), 30, depth=2, width=30)
    limit = np.sqrt(6 / 60)

    for name in ("entry", "highway_01", "logits"):
        for weight, value in reference_nets.highway_weights(model, name).items():
            if "kernel" in weight:
                assert np.abs(value).max() <= limit
                np.testing.assert_allclose(value.std(), limit / np.sqrt(3), rtol=0.1)


@slow_on_jax
@pytest.mark.usefixtures("keras_initial_values")
@pytest.mark.parametrize("kind", KINDS)
def test_fan_in_uniform_limits_kernels_to_one_over_the_root_of_the_fan_in(kind):
    model = dense((40,), 30, depth=3, width=30, kind=kind, initializer="fan_in_uniform")
    layers = {"highway": ("highway_01", "highway_02"), "plain": ("plain_01",), "residual": ("residual_01_h",)}[kind]

    for name in ("entry", *layers, "logits"):
        limit = 1 / np.sqrt(40 if name == "entry" else 30)
        kernels = [value for weight, value in reference_nets.highway_weights(model, name).items() if "kernel" in weight]
        for value in kernels:
            assert 0.95 * limit < np.abs(value).max() <= limit
            np.testing.assert_allclose(value.std(), limit / np.sqrt(3), rtol=0.1)
        assert len(kernels) == 1 or not np.allclose(*kernels)


def test_the_automatic_bias_depends_on_the_depth_of_the_net():
    model = dense((4,), 2, depth=30, width=2, transform_bias="auto")

    np.testing.assert_allclose(reference_nets.highway_weights(model, "highway_29")["transform_bias"], -3.0, **TOLERANCE)


def test_resize_replaces_the_first_layer():
    x = np.arange(12, dtype="float32").reshape(2, 6)
    padded = dense((6,), 2, depth=2, width=8, resize="zero_pad")
    sampled = dense((6,), 2, depth=2, width=3, resize="subsample")

    for model, expected in ((padded, np.pad(x, [(0, 0), (0, 2)])), (sampled, x[:, ::2])):
        assert [name for name in reference_nets.layer_names(model) if name.startswith("highway")] == ["highway"]
        assert model.get_layer("highway").depth == 2
        np.testing.assert_array_equal(array(model.get_layer("entry")(x)), expected)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_under_mixed_policies(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = dense((4,), 2, depth=3, width=6)
    finally:
        keras.config.set_dtype_policy(before)
    logits = model(np.ones((3, 4), "float32"))

    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert model.inputs[0].dtype == "float32"
    assert model.get_layer("highway").compute_dtype == policy.removeprefix("mixed_")
    assert np.isfinite(array(logits)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "dense"}, r"'highway', 'plain', 'residual'. Received: kind='dense'"),
        ({"match": "depth"}, r"'width', 'parameters'. Received: match='depth'"),
        ({"resize": "crop"}, r"Received: resize='crop'"),
        ({"initializer": "zeros"}, r"'glorot_uniform', 'fan_in_uniform'. Received: initializer='zeros'"),
        ({"depth": 0}, r"at least 1. Received: depth=0"),
        ({"kind": "plain", "depth": 401}, r"A plain net has at most 400 layers. Received: depth=401"),
        ({"kind": "residual", "depth": 401}, r"A residual net has at most 400 layers. Received: depth=401"),
        ({"width": 2.5}, r"Received: width=2.5"),
        ({"outputs": True}, r"Received: outputs=True"),
        ({"input_shape": (None, 3)}, r"Received: input_shape=\(None, 3\)"),
        ({"input_shape": ()}, r"Received: input_shape=\(\)"),
        ({"resize": "zero_pad", "width": 3}, r"input shape \(None, 4\), output shape \(None, 3\)"),
    ],
)
def test_invalid_arguments_are_rejected(wrong, message):
    with pytest.raises(ValueError, match=message):
        dense(**{"input_shape": (4,), "outputs": 2, "depth": 2, "width": 6, **wrong})

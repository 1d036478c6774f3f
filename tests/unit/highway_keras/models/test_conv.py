import keras
import numpy as np
import pytest

from highway_keras.initializers import gaussian
from highway_keras.models import Stage, conv
from tests.unit.highway_keras.backend import array, weights_of
from tests.unit.highway_keras.models import reference_nets

FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}
STAGES = (
    Stage(3, entry=5, padding="valid", blocks=(3, 1), pool=(3, 2), dropout=0.5),
    Stage(4, blocks=(3,), pool="average"),
)


def relu(z):
    return np.maximum(z, 0)


SLOW = {"marks": pytest.mark.slow}


@pytest.mark.parametrize("kind", ["highway", pytest.param("plain", **SLOW), pytest.param("residual", **SLOW)])
def test_outputs_equal_those_of_numpy(kind):
    model = reference_nets.perturb(conv((11, 9, 2), outputs=3, stages=STAGES, kind=kind, hidden=5, input_dropout=0.5))
    x = np.random.default_rng(0).normal(size=(2, 11, 9, 2)).astype("float32")

    # Without padding, a 5x5 convolution removes a border of 2 pixels.
    y = reference_nets.plain_layer(model, "entry_1", x.astype("float64"), relu)[:, 2:-2, 2:-2]
    y = reference_nets.block(model, kind, f"{kind}_01", y, relu)
    y = reference_nets.block(model, kind, f"{kind}_02", y, relu)
    y = reference_nets.pool(y, 3, 2)
    y = reference_nets.plain_layer(model, "entry_2", y, relu)
    y = reference_nets.block(model, kind, f"{kind}_03", y, relu)
    y = reference_nets.plain_layer(model, "hidden", y.mean((1, 2)), relu)
    y = reference_nets.plain_layer(model, "logits", y, lambda z: z)

    np.testing.assert_allclose(array(model(x)), y, **FLOAT32)


@pytest.mark.parametrize("mode", ["zero_pad", pytest.param("subsample", **SLOW)])
def test_channels_are_resized_without_weights_at_equal_depth(mode):
    narrow, wide = (2, 4) if mode == "zero_pad" else (4, 2)
    stages = (Stage(narrow, blocks=(3,), pool=(2, 2)), Stage(wide, entry=5, blocks=(3,), pool="average"))
    model = reference_nets.perturb(conv((6, 6, 1), outputs=2, stages=stages, resize=mode))
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 1)).astype("float32")

    y = reference_nets.plain_layer(model, "entry_1", x.astype("float64"), relu)
    y = reference_nets.pool(reference_nets.block(model, "highway", "highway_01", y, relu), 2, 2)
    y = np.pad(y, [(0, 0)] * 3 + [(0, 2)]) if mode == "zero_pad" else y[..., ::2]
    for name in ("highway_02", "highway_03"):  # the entry's 5x5 and the block's 3x3
        y = reference_nets.block(model, "highway", name, y, relu)
    y = reference_nets.plain_layer(model, "logits", y.mean((1, 2)), lambda z: z)

    assert [model.get_layer(f"highway_{number:02}").kernel_size for number in (1, 2, 3)] == [3, 5, 3]
    np.testing.assert_allclose(array(model(x)), y, **FLOAT32)


def test_an_impossible_size_change_is_rejected_with_both_shapes():
    shrinking = (Stage(4, blocks=(3,)), Stage(2, blocks=(3,)))
    growing = (Stage(2, blocks=(3,), pool=(2, 2)), Stage(4, blocks=(3,)))
    without_entry = (Stage(2), Stage(4, entry=None, blocks=(3,)))
    for stages, mode, shapes in (
        (shrinking, "zero_pad", r"input shape \(None, 8, 8, 4\), output shape \(None, 8, 8, 2\)"),
        (growing, "subsample", r"input shape \(None, 4, 4, 2\), output shape \(None, 4, 4, 4\)"),
        (without_entry, "plain", r"input shape \(None, 8, 8, 2\), output shape \(None, 8, 8, 4\)"),
    ):
        with pytest.raises(ValueError, match=shapes):
            conv((8, 8, 1), outputs=2, stages=stages, resize=mode)


def test_average_pooling_takes_images_of_any_size():
    for size in (8, 12, 5):
        model = conv((size, size, 1), outputs=2, stages=(Stage(2, pool=(2, 2)), Stage(3, pool="average")))
        assert model.output_shape == (None, 2)
        assert model.count_params() == (9 + 1) * 2 + (9 * 2 + 1) * 3 + (3 + 1) * 2


def test_kernels_have_the_given_initializers_and_distinct_values():
    stages = (Stage(4, blocks=(3, 3)), Stage(3, entry=3, pool="average"))
    model = conv((8, 8, 3), outputs=6, stages=stages, hidden=5, first_std=1.0, classifier_std=0.05)
    stds = {"entry_1": 1.0, "highway_01": None, "highway_02": None, "entry_2": None, "hidden": None, "logits": 0.05}
    for name, std in stds.items():
        layer = model.get_layer(name)
        for initializer in (layer.kernel_initializer, getattr(layer, "transform_initializer", None)):
            if initializer is not None:
                assert initializer.get_config() == gaussian(std).get_config()
    kernels = [
        weights_of(model.get_layer(name))[weight]
        for name in ("highway_01", "highway_02")
        for weight in ("kernel", "transform_kernel")
    ]
    assert not any(np.allclose(kernels[i], kernels[j]) for i in range(4) for j in range(i))


def test_penalties_are_on_kernels_only_with_a_separate_one_for_the_classifier():
    model = conv((8, 8, 1), outputs=2, stages=(Stage(2, blocks=(3,), pool="average"),), hidden=4, l2=0.1,
                 classifier_l2=0.7)  # fmt: skip
    reference_nets.perturb(model)
    penalties = {
        "entry_1": 0.1, "highway_01": 0.1, "hidden": 0.1, "logits": 0.7,
    }  # fmt: skip

    for name, l2 in penalties.items():
        layer = model.get_layer(name)
        squares = sum(np.sum(value**2) for weight, value in weights_of(layer).items() if "kernel" in weight)
        np.testing.assert_allclose(array(sum(layer.losses)), l2 * squares, rtol=1e-5)


def test_the_automatic_bias_depends_on_the_number_of_layers_with_weights():
    stages = (Stage(2, blocks=(3,) * 10), Stage(2, entry=1, blocks=(1,) * 6, pool="average"))
    model = conv((4, 4, 1), outputs=2, stages=stages, hidden=3, transform_bias="auto")  # 11 + 7 + 1 + 1

    np.testing.assert_allclose(weights_of(model.get_layer("highway_16"))["transform_bias"], -2.0)


def test_logits_are_float32_under_a_mixed_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = conv((6, 6, 1), outputs=2, stages=(Stage(2, blocks=(3,)), Stage(4, blocks=(3,))), resize="zero_pad")
    finally:
        keras.config.set_dtype_policy(before)
    logits = model(np.ones((3, 6, 6, 1), "float32"))

    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert model.get_layer("resize_2").compute_dtype == "bfloat16"
    assert np.isfinite(array(logits)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "gru"}, r"Received: kind='gru'"),
        ({"match": "size"}, r"Received: match='size'"),
        ({"resize": "crop"}, r"Received: resize='crop'"),
        ({"outputs": 0}, r"Received: outputs=0"),
        ({"width": 0}, r"Received: width=0"),
        ({"input_shape": (8, 8)}, r"\(height, width, channels\), all known. Received: input_shape=\(8, 8\)"),
    ],
)
def test_invalid_arguments_are_rejected(wrong, message):
    with pytest.raises(ValueError, match=message):
        conv(**{"input_shape": (8, 8, 1), "outputs": 2, "stages": (Stage(2),), **wrong})

"""Trained weights: loading, new classifiers, damage. A small repository stands in for that of the package."""

import hashlib
import json

import keras
import numpy as np
import pytest

from highway_keras import from_preset
from highway_keras.models import trained_weights

PRESET = "mnist_conv_16"


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A net whose weights are those of a preset in the repository."""
    net = from_preset(PRESET)
    net.set_weights([np.random.default_rng(0).normal(size=weight.shape) for weight in net.get_weights()])
    folder = tmp_path / "digits" / "1"
    folder.mkdir(parents=True)
    np.savez(
        folder / trained_weights.WEIGHTS, **{weight.path: keras.ops.convert_to_numpy(weight) for weight in net.weights}
    )
    digest = hashlib.sha256((folder / trained_weights.WEIGHTS).read_bytes()).hexdigest()
    described = {"model": {"preset": PRESET}, "files": {trained_weights.WEIGHTS: {"sha256": digest}}}
    (folder / trained_weights.MANIFEST).write_text(json.dumps(described))
    monkeypatch.setattr(trained_weights, "REPOSITORY", tmp_path)
    return net, folder


def test_a_preset_has_its_trained_weights(trained):
    net, folder = trained
    assert trained_weights.pretrained() == {PRESET: folder}
    for weight, expected in zip(from_preset(PRESET, weights=True).get_weights(), net.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert not np.array_equal(from_preset(PRESET).get_weights()[0], net.get_weights()[0])


class Around(keras.layers.Layer):
    """A layer of the name of the classifier that builds a pretrained net."""

    def build(self, input_shape):
        """Builds the net."""
        self.net = from_preset(PRESET, weights=True, input_shape=input_shape[1:])

    def call(self, inputs):
        """Applies it."""
        return self.net(inputs)


def test_a_net_may_be_built_by_another_layer(trained):
    net, _ = trained
    around = Around(name="logits")
    around.build((None, 28, 28, 1))
    for weight, expected in zip(around.net.get_weights(), net.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_another_number_of_outputs_gets_a_new_classifier(trained):
    net, _ = trained
    other = from_preset(PRESET, weights=True, outputs=3)
    for layer, expected in zip(other.layers[:-1], net.layers[:-1], strict=True):
        for weight, same in zip(layer.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, same)
    assert other.layers[-1].kernel.shape[-1] == 3
    # The rest of the net fits, so only the classifier may be new.
    assert np.abs(other.layers[-1].get_weights()[0]).max() < 1


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        (PRESET, {"width": 8}, "only the overrides input_shape, outputs and dropout are accepted.* width=8"),
        (PRESET, {"batch_normalization": True}, "batch_normalization=True"),
        # These weights would fit.
        (PRESET, {"activation": "tanh"}, "activation='tanh'"),
        (PRESET, {"transform_bias": -5.0}, "transform_bias=-5.0"),
        (PRESET, {"input_shape": (36, 36, 1)}, r"logits/kernel has the shape .*, and theirs is .*input_shape"),
        ("mnist_conv_32", {}, f"Available: {PRESET}"),
    ],
)
def test_weights_that_do_not_fit_are_refused(trained, preset, overrides, message):
    with pytest.raises(ValueError, match=message):
        from_preset(preset, weights=True, **overrides)


@pytest.mark.parametrize("weights", ["imagenet", "net.weights.h5", 1, None])
def test_weights_are_those_of_the_package_or_none(weights):
    with pytest.raises(ValueError, match=f"call `load_weights` of the net. Received: weights={weights!r}"):
        from_preset(PRESET, weights=weights)


def test_the_preset_of_a_net_of_the_package_is_suggested(trained):
    with pytest.raises(ValueError, match=f"Did you mean '{PRESET}'"):
        from_preset("mnist_conv", weights=True)


def test_what_does_not_change_the_trained_net_may_be_given(trained):
    net, _ = trained
    given = from_preset(PRESET, weights=True, dropout=0.5, input_shape=(28, 28, 1))
    images = np.random.default_rng(1).normal(size=(2, 28, 28, 1)).astype("float32")
    ours, theirs = (keras.ops.convert_to_numpy(one(images)) for one in (given, net))
    np.testing.assert_array_equal(ours, theirs)


def test_a_damaged_file_is_refused(trained):
    _, folder = trained
    content = bytearray((folder / trained_weights.WEIGHTS).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / trained_weights.WEIGHTS).write_bytes(content)
    with pytest.raises(ValueError, match="is damaged: its SHA-256 is not"):
        from_preset(PRESET, weights=True)

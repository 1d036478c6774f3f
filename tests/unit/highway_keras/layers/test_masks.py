"""Masks pass through, and masked steps do not affect others."""

import keras
import numpy as np

from highway_keras import ConvHighway, Highway
from tests.unit.highway_keras.backend import array, inputs, scramble, slow_on_jax

LENGTHS = [5, 3]


def padded_inputs():
    x = inputs(2, 5, 4).astype("float32")
    x[1, 3:] = 0
    return x


def with_random_weights(layer):
    layer.build((None, None, 4))
    return scramble(layer)


def test_a_mask_passes_through_both_layers():
    layers = [keras.layers.Masking(), Highway(), ConvHighway(3), keras.layers.GlobalAveragePooling1D()]
    masking, dense, conv, pool = layers
    x = padded_inputs()
    y = array(conv(dense(masking(x))))
    expected = np.stack([row[:length].mean(axis=0) for row, length in zip(y, LENGTHS, strict=True)])
    inputs = keras.Input((None, 4))
    model = keras.Model(inputs, pool(conv(dense(masking(inputs)))))
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-5, atol=1e-6)


def test_a_padded_sequence_equals_the_shorter_one():
    layer = with_random_weights(ConvHighway(3, activation="tanh"))
    x = inputs(1, 5, 4).astype("float32")
    mask = np.array([[True, True, True, False, False]])
    np.testing.assert_allclose(array(layer(x, mask=mask))[:, :3], array(layer(x[:, :3])), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(array(layer.gates(x, mask=mask))[:, :3], array(layer.gates(x[:, :3])), rtol=1e-5)
    assert not np.allclose(array(layer(x))[:, 2], array(layer(x[:, :3]))[:, 2])


def test_masked_steps_do_not_count_in_normalization_moments():
    layer, twin = (with_random_weights(Highway(batch_normalization=True)) for _ in range(2))
    x, mask = padded_inputs(), np.array([[step < length for step in range(5)] for length in LENGTHS])
    y = array(layer(x, training=True, mask=mask))
    np.testing.assert_allclose(y[mask], array(twin(x[mask][:, None], training=True))[:, 0], rtol=1e-4, atol=1e-5)
    moments = [array(each.normalization.moving_variance) for each in (layer, twin)]
    np.testing.assert_allclose(*moments, rtol=1e-5)


@slow_on_jax
def test_a_mask_may_have_fewer_axes_than_the_input():
    layer = Highway(batch_normalization=True)
    x, mask = inputs(2, 3, 2, 4).astype("float32"), np.array([[True, True, False], [True, False, False]])
    assert layer(x, training=True, mask=mask).shape == x.shape
    layer = ConvHighway(3, batch_normalization=True)
    assert layer(x, training=True, mask=mask).shape == x.shape

import numpy as np
import pytest
import tensorflow as tf

from pipelines.data.coarse import DRAWS, SIZES, coarse


def batch(count, shape):
    return np.random.default_rng(0).uniform(0.1, 1, (count, *shape)).astype(np.float32)


def blurred(images, largest, *chance):
    return coarse(tf.constant(images), largest, tf.constant([chance] * len(images), tf.float32)).numpy()


def test_the_smallest_cells_leave_an_image_unchanged():
    images = batch(2, (6, 9, 3))
    for way in (0.2, 0.7):
        np.testing.assert_allclose(blurred(images, 3.0, 0.0, way, 0.9, 0.9), images, atol=1e-6)


def test_the_largest_cells_become_blocks_of_their_mean():
    images = batch(2, (6, 8, 1))
    means = images.reshape(2, 3, 2, 4, 2, 1).mean(axis=(2, 4))
    expected = means.repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_allclose(blurred(images, 2.0, 0.99, 0.0, 0.0, 0.0), expected, atol=1e-6)


def test_scaled_up_smoothly_an_image_has_no_blocks():
    ramp = np.broadcast_to(np.arange(12, dtype=np.float32)[:, None, None], (1, 12, 12, 1))
    smooth = blurred(ramp, 3.0, 0.99, 0.99, 0.0, 0.0)
    np.testing.assert_allclose(smooth[0, 4:8, 5, 0], ramp[0, 4:8, 5, 0], atol=0.15)
    blocks = blurred(ramp, 3.0, 0.99, 0.0, 0.0, 0.0)
    np.testing.assert_array_equal(blocks[0, 3:6, 5, 0], blocks[0, [4] * 3, 5, 0])


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (28, 28, 1)])
def test_sizes_are_uniform_and_brightness_is_preserved(shape):
    images = np.ones((900, *shape), np.float32)
    chance = tf.random.stateless_uniform([900, DRAWS], [1, 2])
    np.testing.assert_allclose(coarse(tf.constant(images), 2.5, chance), images, atol=1e-5)
    if min(shape[:2]) > 4:
        noisy = batch(900, shape)
        same = np.isclose(coarse(tf.constant(noisy), 2.5, chance), noisy, atol=1e-5).all(axis=(1, 2, 3))
        assert same.mean() == pytest.approx(1 / SIZES, abs=0.03)

import numpy as np
import pytest
import tensorflow as tf

from pipelines.core.config import Augment
from pipelines.data.warp import SMOOTHNESS, displacements, warp

SEED = tf.constant([3, 5], tf.int64)


def batch(count, shape):
    return np.random.default_rng(0).uniform(0.1, 1, (count, *shape)).astype(np.float32)


def constant(down, right, shape):
    return tf.broadcast_to(tf.constant([down, right], tf.float32), (*shape[:3], 2))


def test_whole_displacements_move_an_image_and_leave_zeros_behind():
    images = batch(2, (5, 6, 3))
    np.testing.assert_array_equal(warp(tf.constant(images), constant(0, 0, images.shape)), images)
    moved = warp(tf.constant(images), constant(2, -1, images.shape)).numpy()
    np.testing.assert_array_equal(moved[:, :3, 1:], images[:, 2:, :-1])
    assert not moved[:, 3:].any()
    assert not moved[:, :, :1].any()
    assert not warp(tf.constant(images), constant(99, 0, images.shape)).numpy().any()


def test_between_pixels_the_value_is_interpolated():
    images = batch(1, (4, 4, 1))
    found = warp(tf.constant(images), constant(0.25, 0.5, images.shape)).numpy()[0, 1, 1, 0]
    (a, b), (c, d) = images[0, 1:3, 1:3, 0]
    assert found == pytest.approx(0.75 * (a + b) / 2 + 0.25 * (c + d) / 2)


def test_a_rotation_is_rigid_about_the_centre_and_its_angles_are_uniform():
    moved = displacements(2000, (7, 9), Augment(rotate=30), SEED).numpy()
    down, right = np.meshgrid(np.arange(7) - 3.0, np.arange(9) - 4.0, indexing="ij")
    before, after = down + 1j * right, (down + moved[..., 0]) + 1j * (right + moved[..., 1])
    np.testing.assert_allclose(abs(after), np.broadcast_to(abs(before), after.shape), atol=1e-5)
    away = abs(before) > 0
    angles = np.degrees(np.angle(after[:, away] / before[away]))
    np.testing.assert_allclose(angles, np.broadcast_to(angles[:, :1], angles.shape), atol=1e-4)
    assert np.abs(angles).max() <= 30
    np.testing.assert_allclose(np.histogram(angles[:, 0], bins=4, range=(-30, 30))[0], 500, atol=100)


def test_a_scale_keeps_the_centre_and_its_logarithm_is_uniform():
    moved = displacements(2000, (7, 9), Augment(zoom=0.5), SEED).numpy()
    centred = np.stack(np.meshgrid(np.arange(7) - 3.0, np.arange(9) - 4.0, indexing="ij"), axis=-1)
    factors = 1 + moved[:, 0, 0, 0] / centred[0, 0, 0]
    np.testing.assert_allclose(moved, (factors[:, None, None, None] - 1) * centred, atol=1e-5)
    assert np.abs(np.log(factors)).max() <= np.log(1.5) + 1e-6
    counts, _ = np.histogram(np.log(factors), bins=4, range=(-np.log(1.5), np.log(1.5)))
    np.testing.assert_allclose(counts, 500, atol=100)


def test_a_scale_changes_neither_angles_nor_elastic_displacements():
    both = displacements(3, (7, 9), Augment(rotate=30, elastic=1, zoom=1e-9), SEED).numpy()
    np.testing.assert_allclose(both, displacements(3, (7, 9), Augment(rotate=30, elastic=1), SEED), atol=1e-5)


def test_elastic_displacements_have_the_given_deviation_and_are_smooth():
    moved = displacements(3000, (12, 10), Augment(elastic=1.5), SEED).numpy()
    np.testing.assert_allclose(moved.std(axis=0), 1.5, rtol=0.07)
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=0.12)
    for axis in (1, 2):
        first, second = np.take(moved, 4, axis), np.take(moved, 6, axis)
        correlation = np.mean(first * second) / 1.5**2
        assert correlation == pytest.approx(np.exp(-(2**2) / (4 * SMOOTHNESS**2)), abs=0.05)
    assert abs(np.corrcoef(moved[..., 0].ravel(), moved[..., 1].ravel())[0, 1]) < 0.05

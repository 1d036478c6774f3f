import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from pipelines.core.config import Augment
from pipelines.data.augment import Draws, draw, move
from pipelines.data.augment import augment as augment_with_targets


def augment(images, *arguments):
    return augment_with_targets(images, tf.zeros((len(images), 1)), *arguments)[0]


def cut(image, down, right, mirrored, pad):
    """The reference in NumPy: pad, crop, mirror."""
    height, width, _ = image.shape
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    crop = padded[pad + down : pad + down + height, pad + right : pad + right + width]
    return crop[:, ::-1] if mirrored else crop


def batch(count, shape):
    # No pixel is 0, to distinguish padding.
    return np.random.default_rng(0).uniform(0.1, 1, (count, *shape)).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 3])),
    pad=st.integers(0, 8),
    mirror=st.booleans(),
    seed=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
)
def test_each_image_is_a_crop_of_its_padded_self(shape, pad, mirror, seed):
    images = batch(5, shape)
    chosen = Augment(pad=pad, mirror=mirror)
    draws = draw(5, chosen, tf.constant(seed, tf.int64))
    down, right, mirrored = draws.down.numpy(), draws.right.numpy(), draws.mirrored.numpy()
    assert abs(down).max() <= pad
    assert abs(right).max() <= pad
    assert mirror or not mirrored.any()
    expected = np.stack([cut(*each, pad) for each in zip(images, down, right, mirrored, strict=True)])
    np.testing.assert_array_equal(augment(tf.constant(images), chosen, tf.constant(seed, tf.int64)), expected)


def test_all_crops_and_both_directions_come_equally_often():
    count, pad = 40_000, 2
    draws = draw(count, Augment(pad=pad, mirror=True), tf.constant([0, 0]))
    places = (draws.down.numpy() + pad) * 5 + draws.right.numpy() + pad
    cells = np.bincount(places * 2 + draws.mirrored.numpy(), minlength=50)
    # Chi-square with 49 degrees of freedom: 99.99% of fair draws stay below 96.
    assert ((cells - count / 50) ** 2 / (count / 50)).sum() < 96


def test_steps_and_seeds_draw_differently():
    chosen = Augment(pad=8, mirror=True)
    images = tf.constant(batch(4, (9, 9, 1)))
    made = [augment(images, chosen, tf.constant(seed)).numpy() for seed in ([0, 0], [0, 1], [1, 0], [0, 0])]
    np.testing.assert_array_equal(made[0], made[3])
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert not np.array_equal(made[one], made[other])


def test_without_augmentation_nothing_changes():
    images = tf.constant(batch(3, (4, 4, 3)))
    assert augment(images, Augment(), tf.constant([0, 0])) is images


def test_a_part_of_the_draws_moves_a_part_of_the_batch():
    images = tf.constant(batch(6, (5, 5, 2)))
    draws = draw(6, Augment(pad=3, mirror=True), tf.constant([4, 2]))
    np.testing.assert_array_equal(move(images[2:5], draws.rows(slice(2, 5))), move(images, draws)[2:5])


def test_mirror_turns_left_to_right():
    image = tf.reshape(tf.range(6, dtype=tf.float32), [1, 2, 3, 1])
    draws = Draws(tf.constant([0]), tf.constant([0]), tf.constant([True]))
    np.testing.assert_array_equal(move(image, draws)[0, :, :, 0], [[2, 1, 0], [5, 4, 3]])


@pytest.mark.parametrize("count", [None, 4])
def test_graph_and_eager_give_the_same(count):
    images = batch(4, (5, 6, 3))
    chosen = Augment(pad=2, mirror=True)
    spec = [tf.TensorSpec([count, 5, 6, 3]), tf.TensorSpec([2], tf.int64)]
    traced = tf.function(lambda x, seed: augment_with_targets(x, x[:, 0, 0], chosen, seed)[0], input_signature=spec)
    seed = tf.constant([7, 9], tf.int64)
    result = traced(tf.constant(images), seed)
    np.testing.assert_array_equal(result, augment(tf.constant(images), chosen, seed))
    assert traced.get_concrete_function().output_shapes.as_list() == [count, 5, 6, 3]


def test_sharpness_is_that_of_pillow_with_a_factor_for_each_image():
    images = np.random.default_rng(0).integers(60, 196, (200, 8, 8, 3), np.uint8)
    made = augment(tf.constant(images, tf.float32), Augment(sharpness=0.5), tf.constant([3, 7])).numpy()
    inner = (slice(None), slice(1, -1), slice(1, -1))
    blurred = np.stack([np.asarray(ImageEnhance.Sharpness(Image.fromarray(image)).enhance(0.0)) for image in images])
    # The factor of each image, from the pixels that Pillow rounds, but does not clip.
    away = images[inner] - blurred[inner].astype(np.float32)
    factors = 1 + ((made - images)[inner] * away).sum((1, 2, 3)) / (away**2).sum((1, 2, 3))
    expected = blurred[inner] + factors[:, None, None, None] * away
    np.testing.assert_allclose(made[inner], expected, atol=1.0)
    assert 0.49 < factors.min() < 0.55
    assert 1.45 < factors.max() < 1.51


def test_what_has_no_edges_stays_as_it_is():
    images = np.full((4, 6, 6, 1), 0.25, np.float32)
    made = augment(tf.constant(images), Augment(sharpness=0.9), tf.constant([0, 0]))
    np.testing.assert_allclose(made, images, rtol=1e-6)


def test_augmentation_of_earlier_versions_is_unchanged_to_the_bit():
    images = tf.constant(batch(64, (12, 12, 3)))
    made = augment(images, Augment(pad=4, mirror=True), tf.constant([3, 1234567], tf.int64)).numpy()
    assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == "059b904c01962700"

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from pipelines.core.config import Augment
from pipelines.data import rand_augment as module
from pipelines.data.rand_augment import OPERATIONS, rand_augmented

SEED = tf.constant([3, 5], tf.int64)


def photograph(count=1, side=12, channels=3):
    """Smooth random images that do not use the whole range."""
    small = np.random.default_rng(0).uniform(40, 200, (count, 4, 4, channels)).astype(np.float32)
    return tf.round(tf.image.resize(small, (side, side), "bicubic"))


def applied(operation, images, strength):
    return tf.clip_by_value(operation(images, tf.fill([len(images)], strength)), 0.0, 255.0).numpy()


def in_pillow(change, image):
    return np.asarray(change(Image.fromarray(np.uint8(image))), np.float32)


@pytest.mark.parametrize("strength", [0.5, -0.5])
@pytest.mark.parametrize(
    ("operation", "enhanced"),
    [
        (module.brightness, ImageEnhance.Brightness),
        (module.contrast, ImageEnhance.Contrast),
        (module.saturation, ImageEnhance.Color),
    ],
)
def test_colours_change_as_in_pillow(operation, enhanced, strength):
    images = photograph()
    expected = in_pillow(lambda image: enhanced(image).enhance(1 + module.CHANGE * strength), images[0])
    np.testing.assert_allclose(applied(operation, images, strength)[0], expected, atol=1.5)


def test_sharpness_changes_as_in_pillow_but_for_the_border():
    images = photograph()
    expected = in_pillow(lambda image: ImageEnhance.Sharpness(image).enhance(1 + module.CHANGE * 0.5), images[0])
    np.testing.assert_allclose(applied(module.sharpness, images, 0.5)[0, 1:-1, 1:-1], expected[1:-1, 1:-1], atol=2)


@pytest.mark.parametrize(
    ("operation", "strength", "expected"),
    [
        (module.identity, 1.0, lambda image: image),
        (module.posterization, -0.5, lambda image: ImageOps.posterize(image, 6)),
        (module.solarization, 0.5, lambda image: ImageOps.solarize(image, 128)),
        (module.stretching, 0.3, ImageOps.autocontrast),
        (module.shift_across, 0.5, lambda image: ImageOps.expand(image.crop((2, 0, 12, 12)), (0, 0, 2, 0), (127,) * 3)),
        (module.shift_down, -0.5, lambda image: ImageOps.expand(image.crop((0, 0, 12, 10)), (0, 2, 0, 0), (127,) * 3)),
    ],
)
def test_values_and_places_change_as_in_pillow(operation, strength, expected):
    images = photograph()
    np.testing.assert_allclose(applied(operation, images, strength)[0], in_pillow(expected, images[0]), atol=1)


def test_equalized_values_cover_the_range_evenly_in_their_order():
    images = photograph(2, side=32)
    found = applied(module.equalization, images, 1.0)
    for before, after in zip(images.numpy().reshape(2, -1, 3), found.reshape(2, -1, 3), strict=True):
        for channel in range(3):
            order = np.argsort(before[:, channel], kind="stable")
            assert (np.diff(after[order, channel]) >= 0).all()
            assert (after[:, channel].min(), after[:, channel].max()) == (0, 255)
            assert np.abs(np.quantile(after[:, channel], [0.25, 0.5, 0.75]) - [63.75, 127.5, 191.25]).max() < 12


@pytest.mark.parametrize("operation", [module.stretching, module.equalization])
def test_an_image_of_one_colour_stays(operation):
    images = tf.fill([1, 4, 4, 3], 77.0)
    np.testing.assert_array_equal(applied(operation, images, 1.0), images)


def test_shears_and_rotations_keep_the_middle():
    images = np.full((1, 9, 9, 1), 200, np.float32)
    images[0, 4, 4] = 20
    for operation in (module.rotation, module.shear_across, module.shear_down):
        found = applied(operation, tf.constant(images), 1.0)[0, ..., 0]
        assert found[4, 4] == pytest.approx(20, abs=1e-3)
        assert found[0, 0] != 200 or found[0, 8] != 200 or found[8, 4] != 200


@pytest.mark.parametrize("channels", [1, 3])
def test_each_image_has_operations_of_its_own(channels):
    images = tf.cast(tf.repeat(photograph(channels=channels), 200, axis=0), tf.uint8)
    found = rand_augmented(images, Augment(rand_augment=1, magnitude=0.5), SEED).numpy()
    assert found.dtype == np.uint8
    different = {image.tobytes() for image in found}
    # Both directions of an operation count, and some have only one.
    assert len(OPERATIONS) - 2 <= len(different) <= 2 * len(OPERATIONS)


def test_no_image_depends_on_another():
    images = tf.cast(photograph(8), tf.uint8)
    whole = rand_augmented(images, Augment(rand_augment=3), SEED)
    part = rand_augmented(images[2:5], Augment(rand_augment=3), SEED, count=8, part=slice(2, 5))
    np.testing.assert_array_equal(part, whole[2:5])
    again = rand_augmented(images, Augment(rand_augment=3), SEED)
    np.testing.assert_array_equal(again, whole)
    assert not np.array_equal(rand_augmented(images, Augment(rand_augment=3), SEED + 1), whole)

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.data.images.natural import natural

rng = np.random.default_rng(0)


def rgba(height, width, alpha=255):
    pixels = rng.integers(0, 256, (height, width, 4), np.uint8)
    pixels[..., 3] = alpha
    return pixels


def small(pixels, channels=3):
    return natural(tf.constant(pixels), 32, 32, channels).numpy()


def test_a_picture_of_the_right_size_stays_as_it_is():
    pixels = rgba(32, 32)
    np.testing.assert_array_equal(small(pixels), pixels[..., :3])


@pytest.mark.parametrize("size", [(64, 64), (100, 100), (480, 480), (20, 20)])
def test_it_is_scaled_as_pillow_scales(size):
    smooth = Image.fromarray(rgba(6, 6)[..., :3]).resize(size, Image.Resampling.BICUBIC)
    expected = np.asarray(smooth.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
    pixels = np.dstack([np.asarray(smooth), np.full(size, 255, np.uint8)])
    np.testing.assert_allclose(small(pixels).astype(int), expected, atol=2)


@pytest.mark.parametrize("size", [(40, 90), (90, 40)])
def test_the_middle_is_cut_out(size):
    pixels = rgba(*size)
    top, left = (size[0] - 40) // 2, (size[1] - 40) // 2
    np.testing.assert_array_equal(small(pixels), small(pixels[top : top + 40, left : left + 40]))


def test_transparent_is_white():
    assert (small(rgba(32, 32, alpha=0)) == 255).all()


def test_grey_is_the_brightness():
    pixels = rgba(32, 32)
    expected = np.asarray(Image.fromarray(pixels[..., :3]).convert("L")).astype(int)
    np.testing.assert_allclose(small(pixels, channels=1)[..., 0].astype(int), expected, atol=1)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (31, 2)])
def test_any_size_can_be_taken(size):
    assert small(rgba(*size)).shape == (32, 32, 3)

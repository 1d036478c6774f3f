import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.data.images.conversion import converter, natural, shown, written
from pipelines.data.images.resampling import lanczos

rng = np.random.default_rng(0)


def rgba(height, width, alpha=255):
    pixels = rng.integers(0, 256, (height, width, 4), np.uint8)
    pixels[..., 3] = alpha
    return pixels


def small(pixels, channels=3, kind="natural"):
    return natural(tf.constant(pixels), 32, 32, channels, kind)[0].numpy()


def test_an_image_of_the_right_size_stays_as_it_is():
    pixels = rgba(32, 32)
    np.testing.assert_array_equal(small(pixels), pixels[..., :3])


@pytest.mark.parametrize("size", [(64, 64), (100, 100), (480, 480), (20, 20)])
def test_an_image_is_scaled_as_by_pillow(size):
    smooth = Image.fromarray(rgba(6, 6)[..., :3]).resize(size, Image.Resampling.BICUBIC)
    expected = np.asarray(smooth.resize((32, 32), Image.Resampling.LANCZOS)).astype(int)
    pixels = np.dstack([np.asarray(smooth), np.full(size, 255, np.uint8)])
    np.testing.assert_allclose(small(pixels).astype(int), expected, atol=2)


@pytest.mark.parametrize("size", [(40, 90), (90, 40)])
def test_the_centre_is_cropped(size):
    pixels = rgba(*size)
    top, left = (size[0] - 40) // 2, (size[1] - 40) // 2
    np.testing.assert_array_equal(small(pixels), small(pixels[top : top + 40, left : left + 40]))


@pytest.mark.parametrize("colour", [0, 90, 255])
@pytest.mark.parametrize("bars", [(9, 9, 9, 9), (5, 5, 5, 20), (0, 0, 12, 12), (30, 30, 0, 0)])
def test_a_frame_is_left_out(bars, colour):
    top, bottom, left, right = bars
    photograph = np.asarray(Image.fromarray(rgba(6, 6)[..., :3]).resize((96, 64), Image.Resampling.BICUBIC))
    framed = Image.fromarray(np.pad(photograph, ((top, bottom), (left, right), (0, 0)), constant_values=colour))
    expected = small(np.asarray(Image.fromarray(photograph).convert("RGBA"))).astype(int)
    np.testing.assert_allclose(small(np.asarray(framed.convert("RGBA"))), expected, atol=1)
    # Compression leaves traces of the photograph in the frame.
    framed.resize((4 * framed.width, 4 * framed.height)).save(compressed := io.BytesIO(), "JPEG", quality=60)
    found = small(np.asarray(Image.open(compressed).convert("RGBA")))
    assert np.abs(found - expected).mean() < 6


@pytest.mark.parametrize(
    ("bars", "expected"),
    [
        # 60 x 90 pixels, of which the middle 60 columns are used.
        ((0, 0, 0, 0), (0, 1, 15 / 90, 75 / 90)),
        ((10, 30, 5, 5), (10 / 100, 70 / 100, 20 / 100, 80 / 100)),
    ],
)
def test_the_crop_is_known(bars, expected):
    top, bottom, left, right = bars
    pixels = np.pad(rgba(60, 90), ((top, bottom), (left, right), (0, 0)), constant_values=255)
    crop = converter("natural", (32, 32, 3))(tf.constant(pixels))["crop"]
    np.testing.assert_allclose(crop, expected, atol=1e-5)
    assert "crop" not in converter("padded", (32, 32, 3))(tf.constant(pixels))


@pytest.mark.parametrize("background", [0, 255])
def test_an_object_before_an_empty_background_keeps_its_size(background):
    y, x = np.mgrid[:90, :120]
    for inside in (np.hypot(y - 45, x - 60) < 30, abs(y - 45) + abs(x - 60) < 40):
        pixels = np.where(inside[..., None] | (np.arange(4) == 3), rgba(90, 120), np.uint8(background))
        np.testing.assert_array_equal(small(pixels), small(pixels[:, 15:105]))


def test_bars_on_one_side_are_a_part_of_the_photograph():
    pixels = rgba(64, 64)
    pixels[:20, :, :3] = 255
    assert (small(pixels)[:6] == 255).all()


def test_transparency_becomes_white():
    assert (small(rgba(32, 32, alpha=0)) == 255).all()


def test_grey_is_the_brightness():
    pixels = rgba(32, 32)
    expected = np.asarray(Image.fromarray(pixels[..., :3]).convert("L")).astype(int)
    np.testing.assert_allclose(small(pixels, channels=1)[..., 0].astype(int), expected, atol=1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_padded_image_is_whole_between_grey_bars(channels):
    pixels = rgba(16, 32)
    for image in (pixels, pixels.transpose(1, 0, 2)):
        found = small(image, channels, "padded")
        if image is not pixels:
            found = found.transpose(1, 0, 2)
        assert (found[:8] == 127).all()
        assert (found[24:] == 127).all()
        if channels == 3:
            np.testing.assert_array_equal(found[8:24], pixels[..., :3])


def test_a_padded_image_is_scaled_to_the_longer_side():
    smooth = np.asarray(Image.fromarray(rgba(6, 6)[..., :3]).resize((64, 96), Image.Resampling.BICUBIC))
    found = small(np.dstack([smooth, np.full((96, 64), 255, np.uint8)]), kind="padded")
    expected = np.asarray(Image.fromarray(smooth).resize((21, 32), Image.Resampling.LANCZOS)).astype(int)
    # 64 pixels are 21.3 cells: the grid starts within a cell.
    assert (found[:, :5] == 127).all()
    assert (found[:, 27:] == 127).all()
    np.testing.assert_allclose(found[:, 8:24].mean(), expected[:, 2:18].mean(), atol=3)


@pytest.mark.parametrize("size", [(64, 100), (48, 32)])
def test_a_squashed_image_is_scaled_as_by_pillow(size):
    smooth = np.asarray(Image.fromarray(rgba(6, 6)[..., :3]).resize(size[::-1], Image.Resampling.BICUBIC))
    expected = np.asarray(Image.fromarray(smooth).resize((32, 32), Image.Resampling.LANCZOS)).astype(int)
    pixels = np.dstack([smooth, np.full(size, 255, np.uint8)])
    np.testing.assert_allclose(small(pixels, kind="squashed").astype(int), expected, atol=2)


@pytest.mark.parametrize("kind", ["natural", "padded", "squashed"])
@pytest.mark.parametrize("size", [(1, 1), (1, 500), (31, 2), (32, 32)])
def test_any_size_is_accepted(size, kind):
    pixels = rgba(*size)
    found = small(pixels, kind=kind)
    assert found.shape == (32, 32, 3)
    if size in {(1, 1), (32, 32)}:
        np.testing.assert_array_equal(found, np.broadcast_to(pixels[..., :3], found.shape))


def canvas(ink, paper=None):
    """Returns a stroke on a transparent canvas, or on paper."""
    rgba = np.zeros((9, 9, 4), np.uint8)
    if paper is not None:
        rgba[...] = (*paper, 255)
    rgba[3:6, 4] = (*ink, 255)
    return rgba


def test_transparent_parts_show_the_background():
    rgba = np.array([[[200, 100, 0, 51]]], np.uint8)
    np.testing.assert_allclose(np.ravel(shown(tf.constant(rgba))), [244, 224, 204], atol=1e-3)


def test_colours_without_transparency_are_shown_exactly():
    rgba = np.random.default_rng(0).integers(0, 256, (3, 5, 4), np.uint8)
    rgba[..., 3] = 255
    np.testing.assert_array_equal(np.stack(shown(tf.constant(rgba)), -1), rgba[..., :3])


@pytest.mark.parametrize("value", range(256))
def test_grey_of_grey_is_exact(value):
    pixels = tf.constant([[[value, value, value, 255]]], tf.uint8)
    assert written(pixels)[0, 0] == shown(pixels, 1)[0, 0, 0] == value


@pytest.mark.parametrize(("ink", "around"), [((0, 0, 0), 255), ((60, 0, 90), 255), ((255, 255, 255), 0)])
def test_ink_without_paper_is_distinguished_from_its_surroundings(ink, around):
    found = written(tf.constant(canvas(ink))).numpy()
    assert found[0, 0] == around
    assert abs(found[4, 4] - around) > 127


@pytest.mark.parametrize("paper", [(0, 0, 0), (180, 180, 180), (255, 255, 255)])
def test_paper_stays_paper(paper):
    assert written(tf.constant(canvas((90, 90, 90), paper)))[0, 0] == paper[0]


def test_an_empty_canvas_is_white():
    assert (written(tf.zeros((3, 3, 4), tf.uint8)).numpy() == 255).all()


@pytest.mark.parametrize(("start", "cell", "count", "size"), [(0, 3.5, 8, 28), (9.25, 0.5, 5, 40), (-4, 2, 10, 12)])
def test_the_weights_are_those_of_lanczoss_filter(start, cell, count, size):
    found, inside = lanczos(tf.constant(float(start)), tf.constant(float(cell)), count, tf.constant(float(size)))
    middle, pixel = start + cell * (np.arange(count)[:, None] + 0.5), np.arange(size) + 0.5
    distance = (pixel - middle) / max(cell, 1)
    weights = np.sinc(distance) * np.sinc(distance / 3) * (abs(distance) < 3)
    weights *= (pixel > start) & (pixel < start + cell * count)
    np.testing.assert_array_equal(inside, ((middle > 0) & (middle < size))[:, 0])
    expected = weights[inside] / weights[inside].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[inside], expected, atol=1e-5)

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from pipelines.data.images.decoding import decode, orientation, shrunk
from serving import image_files


@pytest.fixture(scope="module")
def decoder():
    return tf.function(decode, input_signature=[tf.TensorSpec((), tf.string)])


def image(mode="RGB", size=(23, 17)):
    colours = np.random.default_rng(0).integers(0, 256, (3, 3, 4), np.uint8)
    return Image.fromarray(colours, "RGBA").convert("RGB").resize(size, Image.Resampling.BICUBIC).convert(mode)


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def shown(data):
    """Returns the image as Pillow decodes it."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(image.convert("RGBA"))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA"])
def test_a_png_is_read_exactly(decoder, mode):
    data = saved(image(mode), "PNG")
    np.testing.assert_array_equal(decoder(data), shown(data))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_is_read_as_pillow_reads_it(decoder, mode):
    data = saved(image(mode), "JPEG", quality=90)
    np.testing.assert_allclose(decoder(data).numpy().astype(int), shown(data).astype(int), atol=2)


def test_sixteen_bits_become_eight(decoder):
    values = np.arange(0, 65536, 997, dtype=np.uint16)[None]
    data = saved(Image.fromarray(values), "PNG")
    np.testing.assert_array_equal(decoder(data)[0, :, 0], values[0] >> 8)


@pytest.mark.parametrize("way", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_the_exif_orientation_is_applied(decoder, form, way):
    exif = Image.Exif()
    exif[0x0112] = way
    data = saved(image(), form, exif=exif.tobytes())
    assert int(orientation(tf.constant(data))) == way
    np.testing.assert_allclose(decoder(data).numpy().astype(int), shown(data).astype(int), atol=2)


@pytest.mark.parametrize("order", [">", "<"])
def test_both_byte_orders_of_exif_are_read(order):
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, 6, 0)
    head = (b"MM" if order == ">" else b"II") + struct.pack(order + "HIH", 42, 8, 1)
    assert int(orientation(tf.constant(b"\xff\xd8..Exif\0\0" + head + entry + b"\0" * 4))) == 6


@pytest.mark.parametrize("head", [b"", b"Exif\0\0", b"..Exif\0\0MM\0*\xff\xff\xff\xff", b"eXIfII*\0\x08\0\0\0\xff\xff"])
def test_broken_exif_is_ignored(head):
    assert int(orientation(tf.constant(head))) == 1


@pytest.mark.parametrize("size", [(1025, 40), (2100, 1300), (40, 4200), (3, 3000)])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_large_image_is_scaled_down_as_by_the_endpoint(decoder, form, size):
    exif = Image.Exif()
    exif[0x0112] = 8
    data = saved(image(size=size), form, exif=exif.tobytes())
    expected = image_files.decode(data, "a").astype(int)
    np.testing.assert_allclose(decoder(data).numpy().astype(int), expected, atol=2)


@pytest.mark.parametrize(
    ("form", "size", "expected"),
    [
        ("JPEG", (700, 500), (88, 63)),
        ("PNG", (130, 90), (65, 45)),
        ("PNG", (120, 79), (120, 79)),
        # A panorama keeps its shorter side, unless the longer one would exceed 1,000 pixels.
        ("JPEG", (900, 90), (450, 45)),
        ("PNG", (50, 990), (50, 990)),
        ("PNG", (4000, 80), (500, 10)),
    ],
)
def test_both_scale_down_until_the_shorter_side_is_just_enough(form, size, expected):
    small = tf.function(lambda encoded: decode(encoded, 40), input_signature=[tf.TensorSpec((), tf.string)])
    data = saved(image(size=size), form)
    found, theirs = small(tf.constant(data)).numpy().astype(int), image_files.decode(data, "a", side=40)
    assert found.shape[1::-1] == expected
    np.testing.assert_allclose(found, theirs.astype(int), atol=2)


@pytest.fixture(scope="module")
def graph():
    return tf.function(shrunk, input_signature=[tf.TensorSpec((None, None, 4), tf.uint8)])


@pytest.mark.parametrize("size", [(1024, 30), (30, 1024), (1250, 1025), (1550, 350), (1, 35_000), (1750, 3)])
@pytest.mark.parametrize("opaque", [True, False])
def test_large_images_shrink_as_in_the_endpoint(graph, size, opaque):
    rgba = np.random.default_rng(0).integers(0, 256, (*size, 4), dtype=np.uint8)
    if opaque:
        rgba[..., 3] = 255
    found, expected = graph(rgba).numpy().astype(int), image_files.shrunk(rgba).astype(int)
    assert found.shape == expected.shape
    assert max(found.shape[:2]) < 2 * image_files.SIDE
    # Premultiplied colours: Pillow rounds before it averages, which amplifies errors of nearly transparent pixels.
    shown, expected_shown = (one[..., :3] * one[..., 3:] / 255 for one in (found, expected))
    assert np.abs(found[..., 3] - expected[..., 3]).max() <= 1
    assert np.abs(shown - expected_shown).max() <= 3


def test_small_images_stay_as_they_are(graph):
    rgba = np.random.default_rng(0).integers(0, 256, (999, 40, 4), dtype=np.uint8)
    np.testing.assert_array_equal(graph(rgba), rgba)


def test_a_transparent_image_stays_transparent(graph):
    assert not graph(np.zeros((1000, 40, 4), np.uint8)).numpy().any()

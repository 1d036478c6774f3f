import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from pipelines.data.images.encoded import decoded, orientation
from serving import pictures


@pytest.fixture(scope="module")
def decode():
    return tf.function(decoded, input_signature=[tf.TensorSpec((), tf.string)])


def picture(mode="RGB", size=(23, 17)):
    colours = np.random.default_rng(0).integers(0, 256, (3, 3, 4), np.uint8)
    return Image.fromarray(colours, "RGBA").convert("RGB").resize(size, Image.Resampling.BICUBIC).convert(mode)


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def shown(data):
    """As Pillow shows it."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(image.convert("RGBA"))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA"])
def test_a_png_is_read_exactly(decode, mode):
    data = saved(picture(mode), "PNG")
    np.testing.assert_array_equal(decode(data), shown(data))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_is_read_as_pillow_reads_it(decode, mode):
    data = saved(picture(mode), "JPEG", quality=90)
    np.testing.assert_allclose(decode(data).numpy().astype(int), shown(data).astype(int), atol=2)


def test_sixteen_bits_become_eight(decode):
    values = np.arange(0, 65536, 997, dtype=np.uint16)[None]
    data = saved(Image.fromarray(values), "PNG")
    np.testing.assert_array_equal(decode(data)[0, :, 0], values[0] >> 8)


@pytest.mark.parametrize("way", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_picture_is_turned_as_its_exif_says(decode, form, way):
    exif = Image.Exif()
    exif[0x0112] = way
    data = saved(picture(), form, exif=exif.tobytes())
    assert int(orientation(tf.constant(data))) == way
    np.testing.assert_allclose(decode(data).numpy().astype(int), shown(data).astype(int), atol=2)


@pytest.mark.parametrize("order", [">", "<"])
def test_both_byte_orders_of_exif_are_read(order):
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, 6, 0)
    head = (b"MM" if order == ">" else b"II") + struct.pack(order + "HIH", 42, 8, 1)
    assert int(orientation(tf.constant(b"\xff\xd8..Exif\0\0" + head + entry + b"\0" * 4))) == 6


@pytest.mark.parametrize("head", [b"", b"Exif\0\0", b"..Exif\0\0MM\0*\xff\xff\xff\xff", b"eXIfII*\0\x08\0\0\0\xff\xff"])
def test_broken_exif_turns_nothing(head):
    assert int(orientation(tf.constant(head))) == 1


@pytest.mark.parametrize("size", [(1025, 40), (2100, 1300), (40, 4200), (3, 3000)])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_large_picture_is_scaled_down_as_behind_the_endpoint(decode, form, size):
    exif = Image.Exif()
    exif[0x0112] = 8
    data = saved(picture(size=size), form, exif=exif.tobytes())
    expected = pictures.decode(data, "a").astype(int)
    np.testing.assert_allclose(decode(data).numpy().astype(int), expected, atol=2)

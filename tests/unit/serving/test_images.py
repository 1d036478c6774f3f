import zlib

import numpy as np
import pytest
from PIL import Image

from serving.errors import PictureError
from serving.images import read_image

GREY, RGB = (5, 7, 1), (5, 7, 3)


def pixels(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype="uint8")


def save(path, mode, size=(7, 5), **options):
    channels = len(Image.new(mode, (1, 1)).getbands())
    image = Image.fromarray(pixels((size[1], size[0], channels)).squeeze(), mode if channels > 1 else "L")
    image.convert(mode).save(path, **options)
    return path


@pytest.mark.parametrize(
    ("suffix", "shape"),
    [("png", GREY), ("bmp", GREY), ("tiff", GREY), ("png", RGB), ("bmp", RGB), ("tiff", RGB), ("webp", RGB)],
)
def test_pixels_come_back_unchanged(tmp_path, suffix, shape):
    expected = pixels(shape)
    Image.fromarray(expected.squeeze()).save(tmp_path / f"a.{suffix}", lossless=True)
    found = read_image(tmp_path / f"a.{suffix}", shape)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.uint8


def test_jpeg_is_near(tmp_path):
    expected = np.full(GREY, 90, "uint8")
    Image.fromarray(expected.squeeze()).save(tmp_path / "a.jpg", quality=95)
    np.testing.assert_allclose(read_image(tmp_path / "a.jpg", GREY).astype(int), expected, atol=3)


def test_black_and_white_is_grey(tmp_path):
    Image.fromarray(pixels((5, 7)) > 127).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", GREY)[..., 0], (pixels((5, 7)) > 127) * 255)


def test_a_palette_is_its_colours(tmp_path):
    picture = Image.fromarray(pixels(RGB)).quantize(16)
    picture.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", RGB), np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize(
    ("mode", "shape", "said"),
    [
        ("RGB", GREY, "wrong channels: RGB. The model takes 7 x 5 pixels, grey"),
        ("L", RGB, "wrong channels: grey. The model takes 7 x 5 pixels, RGB"),
        ("RGBA", RGB, "wrong channels: RGB and alpha"),
        ("LA", GREY, "wrong channels: grey and alpha"),
    ],
)
def test_other_channels_are_refused(tmp_path, mode, shape, said):
    path = save(tmp_path / "a.png", mode)
    with pytest.raises(PictureError, match=said) as error:
        read_image(path, shape)
    assert str(path) in str(error.value)


def test_sixteen_bits_are_refused(tmp_path):
    Image.fromarray(pixels((5, 7)).astype("uint16") * 257).save(tmp_path / "a.png")
    with pytest.raises(PictureError, match="wrong channels: 16-bit grey"):
        read_image(tmp_path / "a.png", GREY)


def test_a_transparent_colour_is_refused(tmp_path):
    path = save(tmp_path / "a.png", "RGB", transparency=(0, 0, 0))
    with pytest.raises(PictureError, match="transparent"):
        read_image(path, RGB)


def test_another_size_is_refused_width_first(tmp_path):
    path = save(tmp_path / "a.png", "L", size=(5, 7))
    with pytest.raises(PictureError, match=r"wrong size: 5 x 7 pixels\. The model takes 7 x 5 pixels, grey"):
        read_image(path, GREY)


def test_several_frames_are_refused(tmp_path):
    frames = [Image.fromarray(pixels((5, 7), seed)) for seed in (0, 1)]
    frames[0].save(tmp_path / "a.tiff", save_all=True, append_images=frames[1:])
    with pytest.raises(PictureError, match="2 frames"):
        read_image(tmp_path / "a.tiff", GREY)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tiff", "gif", "webp"])
def test_a_picture_cut_anywhere_is_refused_or_read(tmp_path, suffix):
    whole = save(tmp_path / f"whole.{suffix}", "RGB").read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    refused = 0
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            assert read_image(cut, RGB).shape == RGB
        except PictureError as error:
            assert str(cut) in str(error)  # noqa: PT017  either outcome is right, another error is not
            refused += 1
    # The last bytes may be padding, an end mark, or nothing that pixels depend on.
    assert refused > len(whole) / 2


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"])
def test_what_is_no_picture_is_refused(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(PictureError, match=r"a\.png cannot be read as a picture"):
        read_image(tmp_path / "a.png", GREY)


def test_huge_pictures_are_refused_by_their_header(tmp_path):
    # A PNG that says it has 60 000 x 60 000 pixels, and stops there.
    header = save(tmp_path / "a.png", "L").read_bytes()
    huge = (60_000).to_bytes(4, "big") * 2
    chunk = b"IHDR" + huge + header[24:29]
    (tmp_path / "a.png").write_bytes(header[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + header[33:])
    with pytest.raises(PictureError):
        read_image(tmp_path / "a.png", GREY)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(PictureError, match=r"there is no file .*nothing\.png"):
        read_image(tmp_path / "nothing.png", GREY)
    with pytest.raises(PictureError, match="is a folder"):
        read_image(tmp_path, GREY)

import gzip
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile, TiffImagePlugin

from serving import image_files
from serving.errors import ImageError
from serving.image_files import SIDE, decode, read, shrunk

SIZE = (5, 7)


def pixels(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype="uint8")


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def opaque(grey_or_colour):
    colour = np.broadcast_to(grey_or_colour, (*SIZE, 3))
    return np.dstack([colour, np.full(SIZE, 255, np.uint8)])


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "WEBP", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_back_unchanged(form, channels):
    expected = pixels((*SIZE, channels))
    found = decode(saved(Image.fromarray(expected.squeeze()), form, lossless=True), "a")
    np.testing.assert_array_equal(found, opaque(expected))
    assert found.dtype == np.uint8


def test_jpeg_pixels_are_close():
    encoded = saved(Image.fromarray(np.full(SIZE, 90, "uint8")), "JPEG", quality=95)
    np.testing.assert_allclose(decode(encoded, "a").astype(int), opaque(np.uint8(90)), atol=3)


def test_black_and_white_and_palettes_and_cmyk():
    two = pixels(SIZE) > 127
    np.testing.assert_array_equal(decode(saved(Image.fromarray(two), "PNG"), "a"), opaque((two * 255)[..., None]))
    few = Image.fromarray(pixels((*SIZE, 3))).quantize(16)
    np.testing.assert_array_equal(decode(saved(few, "PNG"), "a"), opaque(np.asarray(few.convert("RGB"))))
    inks = Image.new("CMYK", SIZE[::-1], (255, 0, 0, 0))
    np.testing.assert_allclose(decode(saved(inks, "JPEG"), "a").astype(int), opaque(np.uint8([0, 255, 255])), atol=8)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_upper_eight(form):
    deep = np.random.default_rng(0).integers(0, 65_536, SIZE, dtype="uint16")
    np.testing.assert_array_equal(decode(saved(Image.fromarray(deep), form), "a"), opaque((deep >> 8)[..., None]))


def test_transparency_is_kept():
    expected = pixels((*SIZE, 4))
    np.testing.assert_array_equal(decode(saved(Image.fromarray(expected), "PNG"), "a"), expected)
    one = saved(Image.fromarray(np.zeros((*SIZE, 3), "uint8")), "PNG", transparency=(0, 0, 0))
    assert (decode(one, "a")[..., 3] == 0).all()


@pytest.mark.parametrize(("way", "corner"), [(1, (0, 0)), (2, (0, -1)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
def test_the_exif_orientation_is_applied(way, corner):
    stored = np.zeros(SIZE, "uint8")
    stored[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = way
    found = decode(saved(Image.fromarray(stored), "PNG", exif=exif), "a")
    assert found.shape[:2] == (SIZE if way < 5 else SIZE[::-1])
    assert found[(*corner, 0)] == 255


def test_several_frames_are_refused():
    first, second = (Image.fromarray(pixels(SIZE, seed)) for seed in (0, 1))
    for form in ("TIFF", "GIF", "WEBP"):
        with pytest.raises(ImageError, match="a has several frames"):
            decode(saved(first, form, save_all=True, append_images=[second]), "a")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "TIFF", "GIF", "WEBP", "PPM"])
def test_an_image_cut_anywhere_is_refused_or_read(form):
    whole = saved(Image.fromarray(pixels((*SIZE, 3))), form)
    refused = 0
    for length in range(len(whole)):
        try:
            assert decode(whole[:length], "cut").shape == (*SIZE, 4)
        except ImageError as error:
            assert "cut" in str(error)  # noqa: PT017  either outcome is right, another error is not
            refused += 1
    # The last bytes may be padding, an end mark, or nothing that pixels depend on.
    assert refused > len(whole) / 2


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", gzip.compress(b"hello", mtime=0), b"\x1f\x8b\x08 cut"],
)
def test_other_files_are_refused(content):
    with pytest.raises(ImageError, match=r"^a\.png "):
        decode(content, "a.png")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'<?xml version="1.0"?><!-- drawn --><svg xmlns="http://www.w3.org/2000/svg"/>', r"SVG.*rsvg-convert .*png"),
        ('<svg xmlns="http://www.w3.org/2000/svg"/>'.encode("utf-16"), r"SVG.*rsvg-convert"),
        (gzip.compress(b'<svg xmlns="http://www.w3.org/2000/svg"/>' + bytes(10**6), mtime=0), r"SVG.*rsvg-convert"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", r"HEIC.*heif-convert .*jpg"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", r"HEIC.*heif-convert"),
    ],
)
def test_formats_that_cannot_be_decoded_are_refused_with_a_conversion(content, said):
    with pytest.raises(ImageError, match=f"^a is an image in {said}"):
        decode(content, "a")


def test_an_empty_file_is_called_empty():
    with pytest.raises(ImageError, match=r"^a\.png is an empty file\. Expected a file in one of the formats PNG, "):
        decode(b"", "a.png")


def test_avif_is_read_if_pillow_was_built_with_it(monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    grey = np.full(SIZE, 90, "uint8")
    encoded = saved(Image.fromarray(grey), "AVIF", quality=95, exif=exif)
    np.testing.assert_allclose(decode(encoded, "a").astype(int), opaque(np.uint8(90)).transpose(1, 0, 2), atol=3)
    monkeypatch.setattr(image_files, "FORMATS", ("PNG",))
    with pytest.raises(ImageError, match=r"a is an image in AVIF.*avifdec .*png"):
        decode(encoded, "a")


def test_huge_images_are_refused_by_their_header():
    # A PNG file that ends after a header of 60,000 x 60,000 pixels.
    header = saved(Image.fromarray(pixels(SIZE)), "PNG")
    chunk = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + header[24:29]
    huge = header[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + header[33:]
    with pytest.raises(ImageError, match=r"60000 x 60000 pixels|larger than"):
        decode(huge, "a")
    with pytest.raises(ImageError, match="7 x 5 pixels, more than the limit of 34"):
        decode(header, "a", pixels=34)
    assert decode(header, "a", pixels=35).shape == (5, 7, 4)


def test_files(tmp_path):
    expected = pixels((*SIZE, 4))
    Image.fromarray(expected).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path / "a.png"), expected)
    with pytest.raises(ImageError, match=r"there is no file .*nothing\.png"):
        read(tmp_path / "nothing.png")
    with pytest.raises(ImageError, match="is a folder"):
        read(tmp_path)


def test_large_images_are_scaled_down_by_whole_factors():
    expected = np.repeat(np.repeat(pixels((SIDE, 350, 4)), 3, axis=0), 3, axis=1)
    expected[..., 3] = 255
    np.testing.assert_array_equal(shrunk(expected), expected[::3, ::3])
    small = expected[: 2 * SIDE - 1, : 2 * SIDE - 1]
    assert shrunk(small) is small
    # Transparent pixels add no colour to a mean.
    expected[1::3, :, :3], expected[1::3, :, 3] = 255, 0
    found, colour = shrunk(expected), expected[::3, ::3, :3]
    np.testing.assert_allclose(found[..., :3].astype(int), colour, atol=2)
    np.testing.assert_array_equal(found[..., 3], 170)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_file_is_scaled_down_as_its_pixels_are(mode):
    # More rows than are converted at a time, and a factor that divides neither side.
    size = (1543, 1399)
    colours = Image.fromarray(pixels((9, 7, 4))).resize(size, Image.Resampling.BICUBIC)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(colours.convert("L")).astype(np.uint16) << 8)
    else:
        image = colours.convert("RGB").quantize(9) if mode == "P" else colours.convert(mode)
    shown = image.convert("RGBA") if mode != "I;16" else colours.convert("L").convert("RGBA")
    expected = shown.convert("RGBa").reduce(3).convert("RGBA")
    np.testing.assert_array_equal(decode(saved(image, "PNG", compress_level=1), "a"), np.asarray(expected))


def large(mode, size=(1543, 1399)):
    """Returns an image of several bands, whose sides no factor divides."""
    return Image.fromarray(pixels((9, 7, 4))).resize(size, Image.Resampling.BICUBIC).convert(mode)


def reduced(image):
    return np.asarray(image.convert("RGBA").convert("RGBa").reduce(3).convert("RGBA"))


@pytest.mark.parametrize(
    ("mode", "form", "options"),
    [
        *((mode, "TIFF", {}) for mode in ("L", "RGB", "RGBA")),
        ("RGB", "TIFF", {"tiffinfo": {TiffImagePlugin.ROWSPERSTRIP: 64}}),
        *((mode, "BMP", {}) for mode in ("L", "RGB", "RGBA")),
    ],
)
def test_a_large_uncompressed_file_is_never_in_memory_as_a_whole_image(mode, form, options, monkeypatch):
    image = large(mode)
    encoded = saved(image, form, **options)
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    # Pillow does not read the transparency of such BMP files.
    shown = image.convert("RGB") if form == "BMP" else image
    np.testing.assert_array_equal(decode(encoded, "a"), reduced(shown))


def test_other_large_files_without_compression_are_read_as_before():
    upright, exif = large("RGB"), Image.Exif()
    exif[0x0112] = 6
    turned = saved(upright.transpose(Image.Transpose.ROTATE_90), "TIFF", exif=exif)
    np.testing.assert_array_equal(decode(turned, "a"), reduced(upright))
    for mode in ("1", "P"):
        for form in ("TIFF", "BMP"):
            image = large("RGB").quantize(9) if mode == "P" else large(mode)
            np.testing.assert_array_equal(decode(saved(image, form), "a"), reduced(image))
    packed = saved(upright, "TIFF", compression="packbits")
    np.testing.assert_array_equal(decode(packed, "a"), reduced(upright))


def test_strips_may_be_in_any_order():
    image = large("RGB", (1543, 1400))
    encoded = saved(image, "TIFF", tiffinfo={TiffImagePlugin.ROWSPERSTRIP: 700})
    with Image.open(io.BytesIO(encoded)) as opened:
        offsets = [tile.offset for tile in opened.tile]
    assert encoded.count(struct.pack("<2I", *offsets)) == 1
    swapped = encoded.replace(struct.pack("<2I", *offsets), struct.pack("<2I", *offsets[::-1]))
    expected = np.roll(np.asarray(image), 700, axis=0)
    np.testing.assert_array_equal(decode(swapped, "a"), reduced(Image.fromarray(expected)))


@pytest.mark.parametrize("form", ["TIFF", "BMP"])
def test_a_large_uncompressed_file_without_its_last_bytes_is_refused(form):
    with pytest.raises(ImageError, match="a cannot be read as an image"):
        decode(saved(large("RGB"), form)[:-9], "a")


def chunk(kind, content=b""):
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def large_png(shape=(2 * SIDE, 3, 3), **options):
    return saved(Image.fromarray(pixels(shape)), "PNG", **options)


def with_pixels(png, compressed, crc=0):
    """Returns a PNG file with other compressed pixels, optionally with a wrong CRC."""
    made = chunk(b"IDAT", compressed)
    return png[:33] + made[:-4] + (zlib.crc32(made[4:-4]) ^ crc).to_bytes(4, "big") + chunk(b"IEND")


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_pillow_is_not_needed_for_a_large_plain_png(mode, monkeypatch):
    image = Image.fromarray(pixels((1100, 1301, 4))).convert(mode)
    encoded = saved(image, "PNG", compress_level=1)
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    expected = np.asarray(image.convert("RGBA").convert("RGBa").reduce(2).convert("RGBA"))
    np.testing.assert_array_equal(decode(encoded, "a"), expected)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 2 * SIDE), (2 * SIDE, 1)])
def test_a_large_png_may_be_one_pixel_wide(mode, size, monkeypatch):
    encoded = saved(Image.fromarray(pixels((*size, 4))).convert(mode), "PNG")
    found = decode(encoded, "a")
    monkeypatch.setattr(image_files, "_FAST", {})
    np.testing.assert_array_equal(found, decode(encoded, "a"))


def test_large_png_files_that_only_pillow_reads_are_read_as_before(monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    plain, ahead = large_png(), large_png(exif=exif)
    at = ahead.index(b"eXIf") - 4
    made = ahead[at : at + 12 + int.from_bytes(ahead[at : at + 4], "big")]
    files = {
        "rotated": ahead,
        "rotated behind the pixels": plain[:-12] + made + plain[-12:],
        "a transparent colour": large_png(transparency=(1, 2, 3)),
        "four bits": saved(Image.fromarray(pixels((2 * SIDE, 3))).quantize(16), "PNG"),
        "wrong CRC": with_pixels(plain, plain[plain.index(b"IDAT") + 4 : -16], crc=1),
        "more pixels than the header says": with_pixels(plain, zlib.compress(bytes(10 * 2 * SIDE + 1))),
        "two headers": plain[:33] + plain[8:],
        "no end": plain[:-12],
    }
    found = {name: decode(file, name) for name, file in files.items()}
    assert found["rotated"].shape == found["rotated behind the pixels"].shape == (2, SIDE, 4)
    monkeypatch.setattr(image_files, "_FAST", {})
    for name, file in files.items():
        np.testing.assert_array_equal(found[name], decode(file, name), name)


@pytest.mark.parametrize(
    "damage",
    [
        lambda png, rows: with_pixels(png, zlib.compress(rows[:-1])),
        lambda png, rows: with_pixels(png, zlib.compress(rows)[:-1] + b"x", crc=1),
        lambda png, rows: with_pixels(png, zlib.compress(b"\x09" + rows[1:])),
        lambda png, rows: png[: len(png) // 2],
        lambda png, rows: png[:29] + b"none" + png[33:],
    ],
    ids=["too few pixels", "checksums", "filter", "cut", "checksum of the header"],
)
def test_a_damaged_large_png_is_refused(damage):
    png = large_png()
    rows = zlib.decompress(png[png.index(b"IDAT") + 4 : -16])
    with pytest.raises(ImageError, match=r"^a "):
        decode(damage(png, rows), "a")


@pytest.mark.parametrize(
    ("size", "ratio", "expected"),
    [
        ((2100, 700), 4, (525, 175)),
        ((2101, 703), 4, (526, 176)),
        ((999, 40), 1, (999, 40)),
        ((9000, 32), 8, (563, 2)),
        ((9000, 3), 2, (500, 1)),
    ],
)
def test_a_large_jpeg_is_decoded_smaller(size, ratio, expected):
    image = Image.fromarray(pixels((3, 4, 3))).resize(size, Image.Resampling.BICUBIC)
    found = decode(saved(image, "JPEG", quality=95), "a")
    assert found.shape[1::-1] == expected
    # An encoder fills the blocks at the right and at the bottom with the last pixels, which count more than once.
    filled = np.pad(image, ((0, -size[1] % ratio), (0, -size[0] % ratio), (0, 0)), mode="edge")
    smaller = Image.fromarray(filled).reduce(ratio)
    means = np.asarray(smaller.reduce(max(smaller.width // SIDE, 1))).astype(int)
    # A JPEG decoder scales a block down by omitting its highest frequencies, of which averaging keeps a little.
    assert np.abs(found[..., :3] - means).mean() < 1


def test_the_first_of_two_images_in_a_jpeg_is_read():
    first = Image.new("L", SIZE[::-1], 40)
    encoded = saved(first, "MPO", save_all=True, append_images=[Image.new("L", (2, 2), 250)])
    np.testing.assert_allclose(decode(encoded, "a").astype(int), opaque(np.uint8(40)), atol=3)


ROTATED = Image.Exif()
ROTATED[0x0112] = 6


@pytest.mark.parametrize("size", [(61, 45), (1001, 703)])
@pytest.mark.parametrize(
    "options",
    [{}, {"subsampling": 0}, {"progressive": True}, {"keep_rgb": True}, {"exif": ROTATED}, {"icc_profile": b"none"}],
    ids=lambda options: "".join(options) or "plain",
)
def test_the_luminance_of_a_jpeg_is_that_of_its_colours(size, options):
    # Not too strong: an encoder leaves values beyond those of RGB around the edges of others.
    colours = 50 + pixels((5, 4, 3)) * (155 / 255)
    file = saved(Image.fromarray(colours.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC), "JPEG", **options)
    for side in (SIDE, 20):
        found, coloured = decode(file, "a", side=side, grey=True), decode(file, "a", side=side)
        luminance = coloured[..., :3] @ (0.299, 0.587, 0.114)
        np.testing.assert_allclose(found[..., :3].astype(int), np.dstack([luminance] * 3), atol=1)
        assert (found[..., 3] == 255).all()


@pytest.mark.parametrize(("mode", "form"), [("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGB", "WEBP")])
def test_other_files_are_decoded_with_their_colours(mode, form):
    file = saved(Image.fromarray(pixels((*SIZE, 3))).convert(mode), form)
    np.testing.assert_array_equal(decode(file, "a", grey=True), decode(file, "a"))


def test_a_grey_image_is_read_from_disk_without_its_colours(tmp_path):
    (tmp_path / "a.jpg").write_bytes(saved(Image.new("RGB", (9, 9), (200, 10, 10)), "JPEG"))
    assert not np.ptp(read(tmp_path / "a.jpg", grey=True)[..., :3])
    assert np.ptp(read(tmp_path / "a.jpg")[..., :3])


def test_floating_point_pixels_are_refused():
    file = io.BytesIO()
    Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)).save(file, "TIFF")
    with pytest.raises(ImageError, match=r"grey.tiff has floating-point pixels.* Save it with 8 or 16 bits"):
        image_files.decode(file.getvalue(), "grey.tiff")


def test_whole_numbers_of_32_bits_are_refused():
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8)).save(file, "TIFF")
    assert Image.open(file).mode == "I"
    with pytest.raises(ImageError, match=r"grey.tiff has pixels of 32 bits or with a sign"):
        image_files.decode(file.getvalue(), "grey.tiff")

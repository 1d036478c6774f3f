"""Decodes image files to RGBA, upright and no larger than needed.

No net takes more than a few hundred pixels a side. Larger images are scaled down as early as their format allows: JPEG
files while they are decoded, uncompressed files while they are read, all others before their colours are converted.
Of progressive JPEG files, only the scans that can then be seen are decoded. Plain large PNG files are decoded by
kornia-rs, which is faster than Pillow.
"""

import io
import math
import struct
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import AvifImagePlugin, Image, ImageFile, UnidentifiedImageError, features

from serving.errors import ImageError, LimitError
from serving.jpeg_scans import without_details

# Pillow reads AVIF if it was built with libavif, as its wheels are.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", *(["AVIF"] if features.check("avif") else []))
# Photographs of large cameras have 50 million; decoding takes 200 MB, in some formats twice that.
PIXELS = 50_000_000
# Images are scaled down by whole factors until their longer side is below twice this, because `picture.onnx` takes
# 20 ns and 40 bytes per pixel. It is also the default of `side`, the length of the shorter side that is enough.
SIDE = 500
# Factors by which a JPEG decoder can scale down: it then computes fewer pixels of each 8 x 8 block.
RATIOS = (8, 4, 2)
# Pixels to convert and scale down at a time: a converted copy of the whole image would take another 200 MB.
_BAND = 2**20
# Pillow's modes for 16-bit grey; all have their values in the low half of an integer.
DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_TRANSPARENT = ("RGBA", "RGBa", "LA", "La", "PA")
# Formats that cannot be decoded, each with advice to the user.
_CONVERSIONS = {
    "SVG": "Convert it to PNG, for example with `rsvg-convert image.svg -o image.png`.",
    "HEIC": "Convert it to JPEG, for example with `heif-convert image.heic image.jpg`; iPhones take JPEG images "
    'with Settings > Camera > Formats > "Most Compatible".',
    "AVIF": "This endpoint's Pillow has no AVIF decoder. Convert it to PNG, for example with `avifdec image.avif "
    "image.png`.",
}
# By the brand at the start of the file.
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"), "HEIC"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
}
# Bytes within which the first element of an SVG file starts, after comments and declarations.
_SVG_HEAD = 4096
_GZIP = b"\x1f\x8b"
# kornia-rs's names of the modes that it decodes.
_FAST = {"L": "mono", "RGB": "rgb", "RGBA": "rgba"}
# Pillow's names of layouts of uncompressed pixels, with a letter for each byte of a pixel.
_LAYOUTS = ("L", "RGB", "BGR", "RGBA", "BGRX")
_ORIENTATION = 0x0112
# One thread per AVIF file: there is a decoding process for each core already.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
# Undoes each orientation of EXIF; 1 is upright.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(encoded: bytes, name: str, pixels: int = PIXELS, side: int = SIDE, grey: bool = False) -> np.ndarray:
    """Decodes an image as a viewer shows it.

    EXIF orientation is applied. Grey, palette, CMYK and 16-bit images become RGB of 8 bits. A large image is scaled
    down by a whole factor; see `reduction`.

    Args:
        encoded: the whole file, in one of `FORMATS`.
        name: used in messages.
        pixels: maximum number, width times height.
        side: length of the shorter side that is enough; see `serving.model.Version.side`.
        grey: whether only the luminance is needed. JPEG files hold it apart from their colours, whose decoding is then
            skipped. It differs by one level at most from that of the decoded colours, and by more only next to sharp
            edges of strong colours, where lossy compression leaves values outside the range of RGB.

    Returns:
        uint8 `[height, width, 4]`.

    Raises:
        ImageError: it is not an image, damaged, animated, too large, or of floating-point, 32-bit or signed numbers.
        LimitError: there is not enough memory.

    Example:
        rgba = decode(Path("seven.jpg").read_bytes(), "seven.jpg")
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own limit, at which it only warns.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
                # From its header, before any pixel is decoded.
                _check(image, name, pixels)
                return _decode(image, encoded, side, grey)
    except ImageError:
        raise
    except UnidentifiedImageError:
        if other := _other_format(encoded):
            message = f"{name} is an image in {other} format, which is not read. {_CONVERSIONS[other]}"
            raise ImageError(message) from None
        fault = "is not an image" if encoded else "is an empty file"
        raise ImageError(f"{name} {fault}. Expected a file in one of the formats {', '.join(FORMATS)}.") from None
    except Image.DecompressionBombError:
        raise ImageError(f"{name} is larger than {pixels:,} pixels. Send a smaller image.") from None
    except MemoryError:
        raise LimitError(f"{name} needs more memory than is available for an image. Send a smaller one.") from None
    except Exception as error:
        # Damaged files raise nearly anything in Pillow's decoders: OSError, SyntaxError, ValueError, struct.error.
        raise ImageError(f"{name} cannot be read as an image: {error}") from error


def read(path: Path, side: int = SIDE, grey: bool = False) -> np.ndarray:
    """Reads and decodes an image file; see `decode`.

    Example:
        rgba = read(Path("seven.jpg"))
    """
    try:
        return decode(path.read_bytes(), str(path), side=side, grey=grey)
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder. Name the images in it, for example {path}/*.png.") from None
    except FileNotFoundError:
        raise ImageError(f"there is no file {path}.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}.") from error


def shrunk(rgba: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Scales a large image down by a whole factor, by averaging; see `reduction`.

    Args:
        rgba: uint8 `[height, width, 4]`.
        side: length of the shorter side that is enough.

    Returns:
        The same array if it is small enough; otherwise means, with colours weighted by alpha.
    """
    height, width = rgba.shape[:2]
    if reduction(width, height, side) == 1:
        return rgba
    return np.asarray(_small(Image.fromarray(rgba), side))


def reduction(width: int, height: int, side: int = SIDE) -> int:
    """Returns the factor by which an image is scaled down.

    Its shorter side stays at least `side` long, unless the longer one is limited: below `2 * SIDE`.

    Args:
        width: width of the image.
        height: height of the image.
        side: length of the shorter side that is enough.

    Example:
        reduction(4000, 3000, side=96)  # 31: 130 x 97
    """
    return max(1, max(width, height) // SIDE, min(width, height) // side)


def jpeg_ratio(width: int, height: int, side: int = SIDE) -> int:
    """Returns the factor by which a JPEG file is scaled down while it is decoded: 1, 2, 4 or 8.

    If a side is not a multiple of it, the last pixels count as if they were repeated, as in the blocks of the file.

    Args:
        width: width in the file.
        height: height in the file.
        side: length of the shorter side that is enough.
    """
    most = min(reduction(width, height, side), width, height)
    return next((ratio for ratio in RATIOS if ratio <= most), 1)


def _other_format(encoded: bytes) -> str | None:
    """Returns the format of a file, if it is one of those that can only be converted."""
    if encoded[4:8] == b"ftyp":
        return _BRANDS.get(encoded[8:12])
    head = encoded[:_SVG_HEAD]
    if head.startswith(_GZIP):
        # Perhaps SVGZ.
        with suppress(zlib.error):
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _SVG_HEAD)
    # UTF-16 has a zero next to each ASCII character.
    return "SVG" if b"<svg" in head.replace(b"\0", b"").lower() else None


def refuse_unknown_range(image: Image.Image, name: str) -> None:
    """Refuses an image whose values of black and white are unknown.

    Args:
        image: the image; in memory, with no format, one of mode I may hold any whole numbers, as in a TIFF file.
        name: its name, for the message.

    Raises:
        ImageError: see above.
    """
    if image.mode == "F":
        raise ImageError(
            f"{name} has floating-point pixels, whose black and white are unknown. Save it with 8 or 16 bits."
        )
    # Of whole numbers of more than 16 bits, or with a sign.
    if image.mode == "I" and image.format in ("TIFF", None):
        raise ImageError(
            f"{name} has pixels of 32 bits or with a sign, whose black and white are unknown. Save it with 8 or 16 "
            "bits, without a sign."
        )


def _check(image: Image.Image, name: str, pixels: int) -> None:
    if not image.width * image.height:
        raise ImageError(f"{name} has no pixels: {image.width} x {image.height}.")
    if image.width * image.height > pixels:
        raise ImageError(
            f"{name} has {image.width} x {image.height} pixels, more than the limit of {pixels:,}. "
            "Send a smaller image."
        )
    refuse_unknown_range(image, name)
    # Many phones append a second, smaller image (MPO); viewers show the first. The number of frames is not read, as
    # Pillow would go through a GIF of a million frames to its end.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise ImageError(f"{name} has several frames. Expected a single image.")


def _decode(image: ImageFile.ImageFile, encoded: bytes, side: int, grey: bool) -> np.ndarray:
    if (decoded := _decode_large_png(image, encoded, side)) is not None:
        # Not `image.getexif`, which would decode the file to find EXIF data after the pixels.
        orientation = Image.Image.getexif(image).get(_ORIENTATION, 1)
        factor = reduction(*image.size, side)
        small = _reduced(image.size, factor, lambda top, bottom: Image.fromarray(decoded[top:bottom]))
    elif (rows := _uncompressed_rows(image, encoded, side)) is not None:
        orientation = 1
        small = _reduced(image.size, reduction(*image.size, side), rows)
    else:
        if image.format in ("JPEG", "MPO"):
            ratio = jpeg_ratio(*image.size, side)
            if ratio == max(RATIOS) and "progressive" in image.info and image.format == "JPEG":
                encoded = without_details(encoded) or encoded
                image = Image.open(io.BytesIO(encoded), formats=("JPEG",))
            # Has no effect on the mode of grey and CMYK images.
            image.draft("L" if grey else None, (image.width // ratio, image.height // ratio))
            # The file is in memory: parts of 64 KiB, as Pillow reads files, would only be copied.
            image.decodermaxblock = len(encoded)
        image.load()
        # Read only now: in a PNG file, EXIF data may follow the pixels.
        orientation = image.getexif().get(_ORIENTATION, 1)
        small = _small(image, side)
    return np.asarray(small.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else small)


def _uncompressed_rows(
    image: ImageFile.ImageFile, encoded: bytes, side: int
) -> Callable[[int, int], Image.Image] | None:
    """Returns a function that reads a band of rows of a large, uncompressed, upright TIFF or BMP file.

    Bands stay in the caches of the processor until they are scaled down; the whole image would not.

    Returns:
        The function, from the first row and the end of the rows; None if Pillow has to read the file.
    """
    if image.format not in ("TIFF", "BMP") or image.mode not in _FAST or reduction(*image.size, side) == 1:
        return None
    tiles: list[Any] = image.tile
    codec, _, offset, arguments = tiles[0]
    if codec != "raw" or arguments[0] not in _LAYOUTS or image.getexif().get(_ORIENTATION, 1) != 1:
        return None
    width, height = image.size
    layout, stride, direction = arguments[0], int(arguments[1]) or width * len(arguments[0]), arguments[2]
    # TIFF files hold strips of rows, usually one after the other.
    strips = all(
        tile.extents[::2] == (0, width) and tile[2:] == (offset + tile.extents[1] * stride, arguments) for tile in tiles
    )
    if not strips or tiles[-1].extents[3] != height or offset + height * stride > len(encoded):
        return None

    def rows(top: int, bottom: int) -> Image.Image:
        # BMP files usually begin with the lowest row.
        start = offset + stride * (top if direction > 0 else height - bottom)
        band = np.frombuffer(encoded, np.uint8)[start : start + stride * (bottom - top)]
        return Image.frombuffer(image.mode, (width, bottom - top), band, "raw", layout, stride, direction)

    return rows


def _decode_large_png(image: Image.Image, encoded: bytes, side: int) -> np.ndarray | None:
    """Decodes a large, plain PNG file; returns None if Pillow has to decode the file."""
    mode = _FAST.get(image.mode)
    if image.format != "PNG" or mode is None or reduction(*image.size, side) == 1:
        return None
    if image.info.keys() & {"transparency", "interlace"} or not _ends_with_pixels(encoded):
        return None
    from kornia_rs.io import decode_image_png_u8

    try:
        decoded = decode_image_png_u8(encoded, (image.height, image.width), mode)
    except Exception:
        # kornia-rs refuses damaged files and depths other than 8 bits; Pillow reads some of them and explains the rest.
        return None
    return decoded[..., 0] if mode == "mono" else decoded


def _ends_with_pixels(png: bytes) -> bool:
    """Returns whether a PNG file has nothing after its pixels."""
    at, pixels = 8, False
    while at + 8 <= len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IEND" or (pixels and kind != b"IDAT"):
            return bool(kind == b"IEND")
        pixels = pixels or kind == b"IDAT"
        at += 12 + size
    return False


def _small(image: Image.Image, side: int) -> Image.Image:
    """Returns RGBA of 8 bits, scaled down."""
    factor = reduction(*image.size, side)
    if factor == 1:
        return _eight_bits(image).convert("RGBA")
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image.reduce(factor).convert("RGBA")
    return _reduced(image.size, factor, lambda top, bottom: image.crop((0, top, image.width, bottom)))


def _reduced(size: tuple[int, int], factor: int, rows: Callable[[int, int], Image.Image]) -> Image.Image:
    """Scales a large image down in bands.

    Args:
        size: width and height.
        factor: the whole factor.
        rows: returns the image between two rows.
    """
    width, height = size
    step = factor * math.ceil(_BAND / (factor * width))
    bands = [
        (top // factor, _mixable(rows(top, min(top + step, height))).reduce(factor)) for top in range(0, height, step)
    ]
    whole = Image.new(bands[0][1].mode, (math.ceil(width / factor), math.ceil(height / factor)))
    for top, band in bands:
        whole.paste(band, (0, top))
    return whole.convert("RGBA")


def _mixable(image: Image.Image) -> Image.Image:
    """Converts an image to a mode whose values can be averaged."""
    image = _eight_bits(image)
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        return image.convert("RGBA").convert("RGBa")
    # Pillow would copy an image that has the mode already.
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode not in DEEP:
        return image
    # Pillow's own conversion clips values above 255.
    return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))

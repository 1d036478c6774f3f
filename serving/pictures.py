"""Picture files as people have them, decoded to red, green, blue and alpha, the right way up."""

import io
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from serving.errors import PictureError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# A photograph of a large camera has 50; the alpha channel and the decoder's own copy make it 400 MB.
PIXELS = 50_000_000
# From this many pixels on pictures are decoded one after the other: each takes up to 9 bytes a pixel meanwhile.
_LARGE = 8_000_000
_one_at_a_time = threading.Lock()
# Sides from twice this on are scaled down by whole factors before a net's own conversion, whose numbers take 70 bytes
# a pixel.
SIDE = 1024
# Grey of 16 bits, by Pillow's names for it: all have their values in the low half of an integer.
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I")


def decode(encoded: bytes, name: str, pixels: int = PIXELS) -> np.ndarray:
    """Decodes a picture as a viewer would show it.

    The orientation in its EXIF is applied. Grey, palette, CMYK and 16-bit pictures become red, green and blue of 8
    bits.

    Args:
        encoded: the whole file, in one of `FORMATS`.
        name: what to call it in messages.
        pixels: the largest picture that is decoded, width times height.

    Returns:
        uint8 `[height, width, 4]`.

    Raises:
        PictureError: if it is no picture, damaged, animated, or larger than that.

    Example:
        rgba = decode(Path("seven.jpg").read_bytes(), "seven.jpg")
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own, softer limit.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(encoded), formats=FORMATS) as picture:
                # The header is enough to refuse a picture, however large its pixels would be.
                _check(picture, name, pixels)
                with _one_at_a_time if picture.width * picture.height > _LARGE else nullcontext():
                    return np.asarray(_eight_bits(ImageOps.exif_transpose(picture)).convert("RGBA"))
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError(
            f"{name} is no picture. Expected a file in one of the formats {', '.join(FORMATS)}."
        ) from None
    except Image.DecompressionBombError:
        raise PictureError(f"{name} is larger than {pixels:,} pixels. Send a smaller picture.") from None
    except Exception as error:
        # A damaged file can raise nearly anything in Pillow's decoders: OSError, SyntaxError, ValueError, struct.error.
        raise PictureError(f"{name} cannot be read as a picture: {error}") from error


def read(path: Path) -> np.ndarray:
    """Reads a picture file; what comes back and what is raised is as for `decode`, or the file is missing.

    Example:
        rgba = read(Path("seven.jpg"))
    """
    if path.is_dir():
        raise PictureError(f"{path} is a folder. Name the pictures in it, for example {path}/*.png.")
    try:
        return decode(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise PictureError(f"there is no file {path}.") from None
    except OSError as error:
        raise PictureError(f"{path} cannot be read: {error.strerror}.") from error


def shrunk(rgba: np.ndarray) -> np.ndarray:
    """A large picture scaled down by a whole factor, to sides of less than `2 * SIDE`; each pixel is a mean.

    Args:
        rgba: uint8 `[height, width, 4]`.

    Returns:
        The same array, if it is small enough; colours are weighted by their alpha otherwise.
    """
    factor = max(rgba.shape[:2]) // SIDE
    if factor < 2:
        return rgba
    return np.asarray(Image.fromarray(rgba).convert("RGBa").reduce(factor).convert("RGBA"))


def _check(picture: Image.Image, name: str, pixels: int) -> None:
    if not picture.width * picture.height:
        raise PictureError(f"{name} has no pixels: {picture.width} x {picture.height}.")
    if picture.width * picture.height > pixels:
        raise PictureError(
            f"{name} has {picture.width} x {picture.height} pixels, more than the limit of {pixels:,}. "
            "Send a smaller picture."
        )
    # The photographs of many telephones have a second, smaller picture behind the first (MPO); viewers show the first.
    if picture.format != "MPO" and (frames := getattr(picture, "n_frames", 1)) > 1:
        raise PictureError(f"{name} has {frames} frames. Expected one picture.")


def _eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode not in _DEEP:
        return picture
    # Pillow's own conversion cuts off what is above 255.
    return Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))

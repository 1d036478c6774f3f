"""Picture files as people have them, decoded to red, green, blue and alpha, the right way up and no larger than needed.

No net looks at more than some hundred pixels a side. What has more is scaled down as early as its format allows: a JPEG
file while it is decoded, all others before their colours are converted.
"""

import io
import math
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from serving.errors import LimitError, PictureError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# A photograph of a large camera has 50; decoded they take 200 MB, and in some formats twice that meanwhile.
PIXELS = 50_000_000
# Sides from twice this on are scaled down by whole factors: a net's own conversion takes 20 ns and 40 bytes a pixel.
SIDE = 500
# What a JPEG decoder can leave out while it decodes: it then computes fewer pixels of each block of 8 x 8.
RATIOS = (8, 4, 2)
# Rows are converted and scaled down so many pixels at a time, as the whole picture in other colours is another 200 MB.
_BAND = 2**20
# Grey of 16 bits, by Pillow's names for it: all have their values in the low half of an integer.
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_SEE_THROUGH = ("RGBA", "RGBa", "LA", "La", "PA")
_ORIENTATION = 0x0112
# What undoes each orientation of EXIF; 1 is upright.
_BACK = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(encoded: bytes, name: str, pixels: int = PIXELS) -> np.ndarray:
    """Decodes a picture as a viewer would show it.

    The orientation in its EXIF is applied. Grey, palette, CMYK and 16-bit pictures become red, green and blue of 8
    bits. A large picture is scaled down by a whole factor, to sides of less than `2 * SIDE`.

    Args:
        encoded: the whole file, in one of `FORMATS`.
        name: what to call it in messages.
        pixels: the largest picture that is decoded, width times height.

    Returns:
        uint8 `[height, width, 4]`.

    Raises:
        PictureError: if it is no picture, damaged, animated, or larger than that.
        LimitError: if there is not enough memory for it.

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
                return _decoded(picture)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError(
            f"{name} is no picture. Expected a file in one of the formats {', '.join(FORMATS)}."
        ) from None
    except Image.DecompressionBombError:
        raise PictureError(f"{name} is larger than {pixels:,} pixels. Send a smaller picture.") from None
    except MemoryError:
        raise LimitError(f"{name} takes more memory than there is for a picture. Send a smaller one.") from None
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
    if max(rgba.shape[:2]) < 2 * SIDE:
        return rgba
    return np.asarray(_small(Image.fromarray(rgba)))


def jpeg_ratio(width: int, height: int) -> int:
    """How much smaller the sides of a JPEG file are when it is decoded: 1, 2, 4 or 8.

    Where a side is no multiple of it, the last pixels count as if they were repeated: so they are in the file's blocks.

    Args:
        width: in the file.
        height: in the file.
    """
    most = min(max(width, height) // SIDE, width, height)
    return next((ratio for ratio in RATIOS if ratio <= most), 1)


def _check(picture: Image.Image, name: str, pixels: int) -> None:
    if not picture.width * picture.height:
        raise PictureError(f"{name} has no pixels: {picture.width} x {picture.height}.")
    if picture.width * picture.height > pixels:
        raise PictureError(
            f"{name} has {picture.width} x {picture.height} pixels, more than the limit of {pixels:,}. "
            "Send a smaller picture."
        )
    # The photographs of many telephones have a second, smaller picture behind the first (MPO); viewers show the first.
    # How many frames there are is not asked: a GIF of a million would be looked through to its end.
    if picture.format != "MPO" and getattr(picture, "is_animated", False):
        raise PictureError(f"{name} has several frames. Expected one picture.")


def _decoded(picture: Image.Image) -> np.ndarray:
    if picture.format in ("JPEG", "MPO") and (ratio := jpeg_ratio(*picture.size)) > 1:
        picture.draft(None, (picture.width // ratio, picture.height // ratio))
    picture.load()
    # Only now: in a PNG file it may come behind the pixels.
    way = picture.getexif().get(_ORIENTATION, 1)
    small = _small(picture)
    return np.asarray(small.transpose(_BACK[way]) if way in _BACK else small)


def _small(picture: Image.Image) -> Image.Image:
    """Red, green, blue and alpha of 8 bits, with sides of less than `2 * SIDE`."""
    factor = max(picture.size) // SIDE
    if factor < 2:
        return _eight_bits(picture).convert("RGBA")
    if picture.mode in ("L", "RGB") and "transparency" not in picture.info:
        return picture.reduce(factor).convert("RGBA")
    width, height = picture.size
    rows = factor * math.ceil(_BAND / (factor * width))
    bands = [
        (top // factor, _mixable(picture.crop((0, top, width, min(top + rows, height)))).reduce(factor))
        for top in range(0, height, rows)
    ]
    whole = Image.new(bands[0][1].mode, (math.ceil(width / factor), math.ceil(height / factor)))
    for top, band in bands:
        whole.paste(band, (0, top))
    return whole.convert("RGBA")


def _mixable(picture: Image.Image) -> Image.Image:
    """Grey or colours of which means can be taken."""
    picture = _eight_bits(picture)
    if picture.mode in _SEE_THROUGH or "transparency" in picture.info:
        return picture.convert("RGBA").convert("RGBa")
    return picture if picture.mode == "L" else picture.convert("L" if picture.mode == "1" else "RGB")


def _eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode not in _DEEP:
        return picture
    # Pillow's own conversion cuts off what is above 255.
    return Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))

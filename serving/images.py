"""Picture files as pixels."""

from pathlib import Path

import numpy as np
from PIL import Image

from serving.errors import PictureError

# Pillow's modes by channels: those that a net takes as they are. "1" and "P" only store grey and colours shorter.
_MODES = {1: "L", 3: "RGB"}
_STORED_AS = {"1": "L", "P": "RGB"}
_NAMES = {"L": "grey", "LA": "grey and alpha", "I;16": "16-bit grey", "RGBA": "RGB and alpha"}


def read_image(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Reads one picture that has exactly the size and channels that a model takes.

    Black-and-white pictures are read as grey, and palettes without transparency as colours, for nothing is lost
    by that. Everything else (another size, grey for colour, an alpha channel, 16 bits) is refused: how to convert it
    is the user's choice.

    Args:
        path: the file, in any format that Pillow reads.
        shape: height, width and channels (1 for grey or 3 for RGB) expected.

    Returns:
        Pixels, uint8, of `shape`.

    Raises:
        PictureError: if the file is missing, no picture, damaged, animated, or of another size or other channels.

    Example:
        image = read_image(Path("seven.png"), (28, 28, 1))
    """
    if not path.exists():
        raise PictureError(f"there is no file {path}.")
    if path.is_dir():
        raise PictureError(f"{path} is a folder. Name the pictures in it, for example {path}/*.png.")
    try:
        with Image.open(path) as picture:
            # The header is enough to refuse a picture, however large its pixels would be.
            _check(path, picture, shape)
            return np.asarray(picture.convert(_MODES[shape[2]])).reshape(shape)
    except PictureError:
        raise
    except Exception as error:
        # A damaged file can raise nearly anything in Pillow's decoders: OSError, SyntaxError, ValueError, struct.error.
        raise PictureError(f"{path} cannot be read as a picture: {error}") from error


def _check(path: Path, picture: Image.Image, shape: tuple[int, int, int]) -> None:
    height, width, channels = shape
    expected = f"The model takes {width} x {height} pixels, {_name(_MODES[channels])}."
    if (picture.width, picture.height) != (width, height):
        raise PictureError(f"{path} has the wrong size: {picture.width} x {picture.height} pixels. {expected}")
    mode = _STORED_AS.get(picture.mode, picture.mode)
    if mode != _MODES[channels]:
        raise PictureError(f"{path} has the wrong channels: {_name(mode)}. {expected} Convert the picture first.")
    if "transparency" in picture.info:
        raise PictureError(f"{path} has transparent pixels. {expected} Convert the picture first.")
    if getattr(picture, "n_frames", 1) > 1:
        raise PictureError(f"{path} has {getattr(picture, 'n_frames', 1)} frames. The model takes one picture.")


def _name(mode: str) -> str:
    return _NAMES.get(mode, mode)

"""Digits of MNIST, drawn again as people have them: dark on light, large, anywhere, on paper, on nothing."""

import io
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

# From a digit, float32 [28, 28], white on black from 0 to 255, to a picture file.
Drawing = Callable[[np.ndarray, np.random.Generator], bytes]
LARGEST = 20.0


def inverted(digit: np.ndarray, _: np.random.Generator) -> bytes:
    """Dark on light."""
    return _png(255 - digit)


def scaled(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Dark on light, 1 to 20 times as large; all magnitudes are as likely."""
    return _png(255 - _larger(digit, _magnitude(random, LARGEST)))


def shifted(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Dark on light, anywhere in a picture of 1.3 to 2.5 times its size."""
    return _png(255 - _placed(digit, random))


def paper(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Grey ink on grey paper, grainy and brighter on one side, anywhere in it, 2 to 8 times as large."""
    ink = _placed(_larger(digit, random.uniform(2, 8)), random) / 255
    height, width = ink.shape
    down, across = np.linspace(-0.5, 0.5, height)[:, None], np.linspace(-0.5, 0.5, width)[None]
    slopes = random.uniform(-40, 40, 2)
    light = random.uniform(140, 230) + slopes[0] * down + slopes[1] * across
    grain = random.normal(0, random.uniform(2, 10), ink.shape)
    return _jpeg(light * (1 - ink) + random.uniform(20, 70) * ink + grain)


def transparent(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Black strokes on nothing, as a canvas saves them, anywhere in it, up to 10 times as large."""
    ink = _placed(_larger(digit, _magnitude(random, LARGEST / 2)), random)
    return _png(np.stack([*[np.zeros_like(ink)] * 3, ink], axis=-1))


DRAWINGS: Mapping[str, Drawing] = {
    "plain": lambda digit, _: _png(digit),
    "inverted": inverted,
    "1 to 20 times as large": scaled,
    "shifted": shifted,
    "on grainy paper in uneven light": paper,
    "on a transparent background": transparent,
}


def _magnitude(random: np.random.Generator, largest: float) -> float:
    return float(largest ** random.uniform(0, 1))


def _larger(digit: np.ndarray, times: float) -> np.ndarray:
    side = round(digit.shape[0] * times)
    enlarged = Image.fromarray(digit.astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(enlarged).clip(0, 255)


def _placed(digit: np.ndarray, random: np.random.Generator) -> np.ndarray:
    side = len(digit)
    height, width = (int(side * random.uniform(1.3, 2.5)) for _ in range(2))
    picture = np.zeros((height, width), np.float32)
    top, left = random.integers(height - side + 1), random.integers(width - side + 1)
    picture[top : top + side, left : left + side] = digit
    return picture


def _png(pixels: np.ndarray) -> bytes:
    return _file(pixels, "PNG", compress_level=1)


def _jpeg(pixels: np.ndarray) -> bytes:
    return _file(pixels, "JPEG", quality=85)


def _file(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()

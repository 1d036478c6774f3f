"""Redraws stored digits to look handwritten and photographed, as image files.

Each drawing takes a digit, float32 [28, 28], white on black from 0 to 255, and a random generator. Angles and sizes are
uniform between the limits that the code names.
"""

import io
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

Drawing = Callable[[np.ndarray, np.random.Generator], bytes]
LARGEST = 20.0
# Cells per side of a coarse scan, and its grey levels, as in the UCI's optical digits.
SCAN, LEVELS = 8, 16


def inverted(digit: np.ndarray, _: np.random.Generator) -> bytes:
    """Dark on light."""
    return _png(255 - digit)


def scaled(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Dark on light, enlarged 1 to 20 times, uniform in the logarithm."""
    return _png(255 - _larger(digit, _magnitude(random, LARGEST)))


def shifted(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Dark on light, anywhere in an image of 1.3 to 2.5 times its size."""
    return _png(255 - _placed(digit, random))


def paper(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Grey ink on grainy grey paper in uneven light, anywhere on it, enlarged 2 to 8 times."""
    ink = _placed(_larger(digit, random.uniform(2, 8)), random) / 255
    return _jpeg(_on_paper(ink, random))


def photograph(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """A photograph of 1,152 x 864 pixels in colour, filled by the digit, with the noise of a camera."""
    height, width = 864, 1152
    large = Image.fromarray(np.clip(digit, 0, 255).astype(np.uint8)).resize((height, height), Image.Resampling.BICUBIC)
    grey = np.pad(np.asarray(large, np.float32), ((0, 0), (0, width - height)))
    shifted = np.roll(grey, (width - height) // 2, axis=1)[..., None] * 0.85 + np.array((18, 14, 10), np.float32)
    return _jpeg(shifted + random.normal(0, 5, shifted.shape))


def transparent(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Black strokes on a transparent background, as a canvas saves them, anywhere on it, enlarged up to 10 times."""
    ink = _placed(_larger(digit, _magnitude(random, LARGEST / 2)), random)
    return _png(np.stack([*[np.zeros_like(ink)] * 3, ink], axis=-1))


def table(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, with the table showing along one or two sides: oblique, darker or lighter than the paper."""
    ink = _placed(_tilted(_larger(digit, random.uniform(3, 8)), random), random, least=1.6) / 255
    photographed = _on_paper(ink, random)
    for side in random.choice(4, random.integers(1, 3), replace=False):
        beyond = _beyond(ink, side, 0.18, random)
        level = random.uniform(10, 110) if random.random() < 0.7 else random.uniform(200, 250)
        texture = level + random.normal(0, random.uniform(2, 8), ink.shape)
        photographed = np.where(beyond, texture, photographed)
    return _jpeg(_blurred(photographed, 0.8))


def sheet(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On a sheet of paper on a darker table, which shows along three or four sides: oblique."""
    ink = _placed(_tilted(_larger(digit, random.uniform(3, 8)), random), random) / 255
    ink = np.pad(ink, round(random.uniform(0.15, 0.45) * max(ink.shape)))
    sides = random.choice(4, random.integers(3, 5), replace=False)
    beyond = np.any([_beyond(ink, side, 0.25, random) for side in sides], axis=0)
    texture = random.uniform(10, 80) + random.normal(0, random.uniform(2, 8), ink.shape)
    return _jpeg(_blurred(np.where(beyond, texture, _on_paper(ink, random)), 0.8))


def turned_sheet(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On a sheet turned by up to 25 degrees and seen at an angle, on a streaked table that is darker or lighter.

    The sheet takes up 20% to 80% of the image, part of it may be beyond the edge, and a darker table is in its shadow.
    """
    ink = _placed(_larger(digit, random.uniform(3, 8)), random)
    times = random.uniform(1.1, 1.9)
    height, width = (round(side * times) for side in ink.shape)
    angle = np.radians(random.uniform(-25, 25))
    turn = np.array([(np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))])
    sheet = np.array([(0, 0), (0, ink.shape[0]), ink.shape[::-1], (ink.shape[1], 0)], np.float64)
    moved = sheet - sheet.mean(axis=0) + random.uniform(-0.05, 0.05, (4, 2)) * sheet.max(axis=0)
    corners = moved @ turn + (0.5 + random.uniform(-0.15, 0.15, 2)) * (width, height)
    seen = Image.fromarray(ink).transform(
        (width, height), Image.Transform.PERSPECTIVE, _projection(corners, sheet), Image.Resampling.BICUBIC
    )
    large = Image.new("L", (2 * width, 2 * height))
    ImageDraw.Draw(large).polygon([tuple(2 * corner) for corner in corners], fill=255)
    covered = np.asarray(large.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    photographed = _on_paper(np.asarray(seen).clip(0, 255) / 255, random)
    if random.random() < 0.3:
        table = _streaked((height, width), random.uniform(225, 250), random)
        photographed -= 40
    else:
        shadow = _blurred(255 * covered, max(1, 0.01 * max(height, width))) / 255
        table = _streaked((height, width), random.uniform(10, 100), random) * (1 - random.uniform(0, 0.5) * shadow)
    return _jpeg(_blurred(covered * photographed + (1 - covered) * table, 0.8))


def shaded(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, half of it in a shadow: 20% to 50% darker, with an edge as wide as 6% to 40% of the diagonal."""
    photographed = _on_paper(_placed(_larger(digit, random.uniform(3, 8)), random) / 255, random)
    height, width = photographed.shape
    y, x = np.linspace(-0.5, 0.5, height)[:, None] * height, np.linspace(-0.5, 0.5, width)[None] * width
    angle, diagonal = random.uniform(0, 2 * np.pi), np.hypot(height, width)
    distance = (x * np.cos(angle) + y * np.sin(angle)) / diagonal - random.uniform(-0.15, 0.15)
    # A logistic curve passes from 10% to 90% within 4.4 of its scale.
    shade = random.uniform(0.2, 0.5) / (1 + np.exp(-distance / (random.uniform(0.06, 0.4) / 4.4)))
    return _jpeg(photographed * (1 - shade))


def framed(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, in a drawn rectangle."""
    ink = _placed(_larger(digit, random.uniform(3, 8)), random, least=1.5)
    height, width = ink.shape
    ys, xs = np.nonzero(ink > 25)
    line = max(1, round(random.uniform(0.01, 0.03) * min(ink.shape)))
    # Between the digit and the edge of the image, on each side.
    share = random.uniform(0.1, 0.8, 4)
    left, right = share[0] * (xs.min() - 2 * line), width - share[1] * (width - xs.max() - 2 * line)
    top, bottom = share[2] * (ys.min() - 2 * line), height - share[3] * (height - ys.max() - 2 * line)
    drawn = Image.fromarray(ink.astype(np.uint8))
    ImageDraw.Draw(drawn).rectangle(tuple(map(round, (left, top, right, bottom))), outline=255, width=line)
    return _jpeg(_on_paper(_blurred(np.asarray(drawn, np.float32), 0.7) / 255, random))


def specked(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, with one to three specks of ink away from the strokes."""
    ink = _placed(_larger(digit, random.uniform(3, 8)), random)
    size = max(ink.shape)
    free = np.argwhere(~_near(ink > 25, round(0.06 * size)))
    drawn = Image.fromarray(ink.astype(np.uint8))
    for _ in range(random.integers(1, 4)):
        y, x = free[random.integers(len(free))]
        radius = random.uniform(0.008, 0.03) * size
        ImageDraw.Draw(drawn).ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    return _jpeg(_on_paper(_blurred(np.asarray(drawn, np.float32), 0.7) / 255, random))


def touching(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, with strokes that reach one or two edges of the image."""
    ink = _placed(_larger(digit, random.uniform(2, 8)), random)
    ys, xs = np.nonzero(ink > 60)
    cuts = (slice(ys.min(), None), slice(None, ys.max() + 1)), (slice(xs.min(), None), slice(None, xs.max() + 1))
    for axis in random.choice(2, random.integers(1, 3), replace=False):
        at = cuts[axis][random.integers(2)]
        ink = ink[at] if axis == 0 else ink[:, at]
        ys, xs = np.nonzero(ink > 60)
        cuts = (slice(ys.min(), None), slice(None, ys.max() + 1)), (slice(xs.min(), None), slice(None, xs.max() + 1))
    return _jpeg(_on_paper(ink / 255, random))


def thick(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, with strokes of a marker: wider by 1 to 2 of the 28 pixels."""
    times = random.uniform(3, 8)
    large = _larger(digit, times)
    large = np.asarray(_disc(Image.fromarray(large.astype(np.uint8)), random.uniform(0.5, 1.0) * times), np.float32)
    return _jpeg(_on_paper(_placed(large, random) / 255, random))


def coarse(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Scanned with 8 x 8 cells of 17 grey levels, filled by the digit, and scaled up 10 to 40 times."""
    ys, xs = np.nonzero(digit > 60)
    box = digit[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    side = max(box.shape)
    square = np.zeros((side, side), np.float32)
    top, left = (side - box.shape[0]) // 2, (side - box.shape[1]) // 2
    square[top : top + box.shape[0], left : left + box.shape[1]] = box
    cells = np.asarray(Image.fromarray(square).resize((SCAN, SCAN), Image.Resampling.BOX))
    cells = np.round(cells / 255 * LEVELS) / LEVELS * 255
    how = (Image.Resampling.NEAREST, Image.Resampling.BICUBIC)[random.integers(2)]
    sides = (SCAN * int(random.integers(10, 41)),) * 2
    return _png(255 - np.asarray(Image.fromarray(cells.astype(np.float32)).resize(sides, how)))


def perspective(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """On paper, turned by up to 8 degrees and seen at an angle."""
    ink = _placed(_tilted(_larger(digit, random.uniform(3, 8)), random), random)
    height, width = ink.shape
    corners = np.array([(0, 0), (0, height), (width, height), (width, 0)])
    quad = corners + random.uniform(-0.06, 0.06, (4, 2)) * (width, height)
    seen = Image.fromarray(ink).transform(
        (width, height), Image.Transform.QUAD, tuple(quad.ravel()), Image.Resampling.BICUBIC
    )
    return _jpeg(_on_paper(np.asarray(seen).clip(0, 255) / 255, random))


DRAWINGS: Mapping[str, Drawing] = {
    "plain": lambda digit, _: _png(digit),
    "inverted": inverted,
    "1 to 20 times as large": scaled,
    "shifted": shifted,
    "on grainy paper in uneven light": paper,
    "on a transparent background": transparent,
    "turned, in perspective": perspective,
    "with the edge of the table": table,
    "on a sheet on the table": sheet,
    "on a turned sheet on the table": turned_sheet,
    "in a soft shadow": shaded,
    "in a drawn frame": framed,
    "with specks": specked,
    "touching the edge of the image": touching,
    "with a thick marker": thick,
    "scanned with 8 x 8 cells": coarse,
}


def blank(_: np.ndarray, random: np.random.Generator) -> bytes:
    """Paper without ink."""
    return _jpeg(_on_paper(np.zeros(tuple(random.integers(40, 400, 2)), np.float32), random))


def blank_with_table(_: np.ndarray, random: np.random.Generator) -> bytes:
    """Paper without ink, with the table showing along one or two sides: oblique."""
    return table(np.zeros((28, 28), np.float32), random)


def blank_sheet(_: np.ndarray, random: np.random.Generator) -> bytes:
    """A turned sheet without ink on the table."""
    return turned_sheet(np.zeros((28, 28), np.float32), random)


def bright_spot(_: np.ndarray, random: np.random.Generator) -> bytes:
    """Light that fades around a spot, as wide as a fifth of the image or more, without ink."""
    size = random.integers(60, 400, 2)
    y, x = (np.arange(side) / side - random.uniform(0.2, 0.8) for side in size)
    faded = np.exp(-(y[:, None] ** 2 + x**2) / 2 / random.uniform(0.2, 0.7) ** 2)
    dark, light = random.uniform(5, 120), random.uniform(120, 250)
    return _jpeg(dark + (light - dark) * faded + random.normal(0, random.uniform(0, 4), faded.shape))


def noise(_: np.ndarray, random: np.random.Generator) -> bytes:
    """Random pixels of any size."""
    return _png(random.uniform(0, 255, tuple(random.integers(20, 300, 2))))


def dot(_: np.ndarray, random: np.random.Generator) -> bytes:
    """A round spot on paper, of 2% to 15% of the longer side."""
    size = random.integers(60, 400, 2)
    drawn, radius = Image.new("L", (int(size[0]), int(size[1]))), random.uniform(0.01, 0.075) * max(size)
    x, y = (random.uniform(radius, max(side - radius, radius)) for side in size)
    ImageDraw.Draw(drawn).ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    return _jpeg(_on_paper(_blurred(np.asarray(drawn, np.float32), 0.7) / 255, random))


WITHOUT_DIGITS: Mapping[str, Drawing] = {
    "blank paper": blank,
    "blank paper with the edge of the table": blank_with_table,
    "a blank turned sheet on the table": blank_sheet,
    "a bright spot that fades": bright_spot,
    "noise": noise,
    "a dot": dot,
}


def row(digits: np.ndarray, random: np.random.Generator) -> bytes:
    """Several digits [n, 28, 28] side by side on paper, of about the same height."""
    times, ink = random.uniform(2, 6), None
    for digit in digits:
        large = _larger(digit, times * random.uniform(0.9, 1.1))
        ys, xs = np.nonzero(large > 25)
        large = large[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
        room = round(random.uniform(3, 9) * times)
        height = round(26 * times)
        cell = np.zeros((height, large.shape[1] + room), np.float32)
        top = random.integers(0, max(height - large.shape[0], 0) + 1)
        cell[top : top + large.shape[0], : large.shape[1]] = large[: height - top]
        ink = cell if ink is None else np.concatenate([ink, cell], axis=1)
    assert ink is not None, "there is a digit"
    return _jpeg(_on_paper(np.pad(ink, round(random.uniform(3, 12) * times)) / 255, random))


def _magnitude(random: np.random.Generator, largest: float) -> float:
    return float(largest ** random.uniform(0, 1))


def _larger(digit: np.ndarray, times: float) -> np.ndarray:
    side = round(digit.shape[0] * times)
    enlarged = Image.fromarray(digit.astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(enlarged).clip(0, 255)


def _tilted(ink: np.ndarray, random: np.random.Generator) -> np.ndarray:
    turned = Image.fromarray(ink).rotate(random.uniform(-8, 8), Image.Resampling.BICUBIC)
    return np.asarray(turned).clip(0, 255)


def _placed(digit: np.ndarray, random: np.random.Generator, least: float = 1.3) -> np.ndarray:
    side = len(digit)
    height, width = (int(side * random.uniform(least, 2.5)) for _ in range(2))
    canvas = np.zeros((height, width), np.float32)
    top, left = random.integers(height - side + 1), random.integers(width - side + 1)
    canvas[top : top + side, left : left + side] = digit
    return canvas


def _on_paper(ink: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Grey ink, from 0 to 1, on grainy grey paper in uneven light."""
    height, width = ink.shape
    down, across = np.linspace(-0.5, 0.5, height)[:, None], np.linspace(-0.5, 0.5, width)[None]
    slopes = random.uniform(-40, 40, 2)
    light = random.uniform(140, 230) + slopes[0] * down + slopes[1] * across
    grain = random.normal(0, random.uniform(2, 10), ink.shape)
    return light * (1 - ink) + random.uniform(20, 70) * ink + grain


def _beyond(ink: np.ndarray, side: int, most: float, random: np.random.Generator) -> np.ndarray:
    """Cells beyond the oblique edge of the paper on one side, which is at most a share of the image away from its own.

    A photographer keeps the digit on the paper.
    """
    height, width = ink.shape
    y, x = np.linspace(-0.5, 0.5, height)[:, None], np.linspace(-0.5, 0.5, width)[None]
    angle = np.radians(90 * side + random.uniform(-8, 8))
    distance = x * np.cos(angle) + y * np.sin(angle)
    farthest = distance[ink > 0.1].max(initial=-0.5)
    return distance > max(0.5 - random.uniform(0.03, most), farthest + 0.03)


def _projection(corners: np.ndarray, onto: np.ndarray) -> tuple[float, ...]:
    """Returns the coefficients by which Pillow finds, for each pixel (x, y), its place in the source of an image.

    Args:
        corners: four corners (x, y) in the image, [4, 2].
        onto: their places in the source, [4, 2].
    """
    rows, places = [], []
    for (x, y), (u, v) in zip(corners, onto, strict=True):
        rows += [(x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y)]
        places += [u, v]
    return tuple(np.linalg.solve(np.array(rows), np.array(places)))


def _streaked(shape: tuple[int, int], level: float, random: np.random.Generator) -> np.ndarray:
    """A table of grainy wood, with streaks along one side of the image."""
    axis = random.integers(2)
    streaks = np.convolve(random.normal(0, 1, shape[axis]), np.ones(max(3, shape[axis] // 50)), "same")
    streaks *= random.uniform(0, 10) / max(streaks.std(), 1e-6)
    grain = random.normal(0, random.uniform(2, 8), shape)
    return level + grain + (streaks[:, None] if axis == 0 else streaks)


def _near(mask: np.ndarray, cells: int) -> np.ndarray:
    """Cells within a distance of a mask."""
    return np.asarray(_disc(Image.fromarray(mask.astype(np.uint8) * 255), cells)) > 0


def _disc(image: Image.Image, radius: float) -> Image.Image:
    """Dilates by a disc, as the union of shifted copies."""
    found = image
    for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
        for reach in (radius, radius / 2):
            shift = round(reach * np.cos(angle)), round(reach * np.sin(angle))
            moved = Image.new(image.mode, image.size)
            moved.paste(image, shift)
            found = ImageChops.lighter(found, moved)
    return found


def _blurred(pixels: np.ndarray, radius: float) -> np.ndarray:
    blurred = Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(radius))
    return np.asarray(blurred, np.float32)


def _png(pixels: np.ndarray) -> bytes:
    return _file(pixels, "PNG", compress_level=1)


def _jpeg(pixels: np.ndarray) -> bytes:
    return _file(pixels, "JPEG", quality=85)


def _file(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()

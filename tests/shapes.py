"""Coloured shapes of several sizes, as a user's own data."""

import io

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("circle", "square", "triangle")


def drawn(label, seed):
    """Returns an image of 20 to 60 pixels a side with one shape on a light background."""
    random = np.random.default_rng((CLASSES.index(label), seed))
    width, height = (int(side) for side in random.integers(20, 61, 2))
    image = Image.new("RGB", (width, height), tuple(int(value) for value in random.integers(180, 256, 3)))
    radius = min(width, height) * random.uniform(0.25, 0.45)
    x, y = (float(random.uniform(radius, side - radius)) for side in (width, height))
    colour = tuple(int(value) for value in random.integers(0, 120, 3))
    draw = ImageDraw.Draw(image)
    if label == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour)
    else:
        draw.regular_polygon((x, y, radius), {"square": 4, "triangle": 3}[label], fill=colour)
    return image


def encoded(label, seed, form="PNG"):
    file = io.BytesIO()
    drawn(label, seed).save(file, form)
    return file.getvalue()


def write(folder, per_class, start=0, form="PNG"):
    """Writes images into a folder for each class."""
    for label in CLASSES:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for seed in range(start, start + per_class):
            (folder / label / f"{seed:03}.{form.lower()}").write_bytes(encoded(label, seed, form))
    return folder

"""Share of photographs that get the answer of all of their pixels, although they are scaled down while decoded.

The photographs are test images that were enlarged, with grain. Ours is the endpoint's way. The reference decodes all
pixels with Pillow, and gives them to `picture.onnx`, which resamples them to the net's input.
"""

import io
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import data
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from pipelines.data import sources
from serving import image_files, package
from serving.manifest import PROBABILITIES, RGBA
from serving.model import Model, open_model

# Nets of the package that are named like their data sets.
NETS = ("mnist", "cifar10")
# Sides of the photographs; the largest have 12 megapixels.
SIDES, QUICK_SIDES = (1152, 2047, 3464), (1152,)
IMAGES, QUICK_IMAGES = 20, 1
# Standard deviation of the grain, in levels.
GRAIN = 4.0
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "JPEG": {"format": "JPEG", "quality": 90},
    "progressive JPEG": {"format": "JPEG", "quality": 90, "progressive": True},
    "PNG": {"format": "PNG", "compress_level": 1},
    "WEBP": {"format": "WEBP", "quality": 80},
}
# Approximate seconds per megapixel and file.
MEGAPIXEL_COST = 0.1


def run(session: Session) -> Iterator[Row]:
    """Compares the answers of each net for each format and size."""
    for net in NETS:
        if not data.is_prepared(net):
            session.note(f"same_answers: {net} is skipped, because it is not prepared (highway data prepare {net})")
            continue
        model, images = open_model(package.pretrained() / net), _images(net, session)
        for name, options in FORMATS.items():
            for side in _sides(session):
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    found = list(threads.map(partial(_compared, model, side, options), images))
                share = 100 * float(np.mean([same for same, _ in found]))
                largest = max(difference for _, difference in found)
                measure, note = f"{name}: {side:,} x {side:,}", f"{len(images)} test images, difference {largest:.4f}"
                session.spent(_cost(side, len(images)), f"same_answers, {net}, {measure}: {share:.0f}%, {note}")
                yield session.row(Row("same_answers", measure, "%", net, ours=True, data=note), [share])


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    count = QUICK_IMAGES if session.quick else IMAGES
    return len(NETS) * len(FORMATS) * sum(_cost(side, count) for side in _sides(session))


BENCHMARK = Benchmark("same_answers", "Do photographs get the answers of all of their pixels?", run, cost)


def _sides(session: Session) -> tuple[int, ...]:
    return QUICK_SIDES if session.quick else SIDES


def _cost(side: int, count: int) -> float:
    return MEGAPIXEL_COST * side * side / 1e6 * count


def _images(net: str, session: Session) -> np.ndarray:
    """Returns test images, evenly spaced in the split."""
    examples = sources.load(net, "test")
    assert isinstance(examples, sources.Examples), "the test images fit into memory"
    count = QUICK_IMAGES if session.quick else IMAGES
    return examples.images[np.linspace(0, len(examples.images) - 1, count).astype(int)]


def _compared(model: Model, side: int, options: Mapping[str, Any], image: np.ndarray) -> tuple[bool, float]:
    """Returns whether both ways find the same class, and the largest difference of their probabilities."""
    file = _photograph(image, side, options)
    quick = image_files.decode(file, "a photograph", side=model.side, grey=model.manifest.is_grey)
    with Image.open(io.BytesIO(file)) as whole:
        every_pixel = np.asarray(whole.convert("RGBA"))
    (expected,) = model.conversion.run([model.manifest.input.name], {RGBA: every_pixel})
    found, wanted = model.predict(np.stack([model.to_input(quick), expected]))[PROBABILITIES]
    return bool(found.argmax() == wanted.argmax()), float(np.abs(found - wanted).max())


def _photograph(image: np.ndarray, side: int, options: Mapping[str, Any]) -> bytes:
    large = Image.fromarray(image.squeeze()).resize((side, side), Image.Resampling.BICUBIC)
    pixels = np.asarray(large, np.float32)
    pixels += np.random.default_rng(0).normal(0, GRAIN, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, **options)
    return file.getvalue()

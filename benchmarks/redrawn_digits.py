"""Accuracy on test digits redrawn as people write them: dark on light, large, off-centre, on paper, transparent.

The files are processed as by the endpoint: decoded, converted to the net's input by `picture.onnx`, and classified by
`model.onnx`. No choice depends on these accuracies: they are evaluated once, like those of `highway evaluate`.
"""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import data, serving
from benchmarks.controller import ROOT
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.model import Model, open_model

# Draws a digit, float32 [28, 28], white on black from 0 to 255, as an image file.
Drawing = Callable[[np.ndarray, np.random.Generator], bytes]
LARGEST = 20.0
SEED = 0
BATCH = 256
# Approximate seconds of training, and per image file.
TRAIN_COST, FILE_COST = 500.0, 0.015


def run(session: Session) -> Iterator[Row]:
    """Evaluates `mnist_conv_32` after 5 epochs on each drawing; if quick, another net on ten digits."""
    name = "mnist" if data.is_prepared("mnist") and not session.quick else "mnist_5k"
    model = open_model(serving.exported(session) if session.quick else _trained(session, name))
    from pipelines.data import sources

    examples = sources.load(name, "test")
    assert isinstance(examples, sources.Examples), "digits fit into memory"
    digits, labels = (array[: 10 if session.quick else None] for array in (examples.images[..., 0], examples.labels))
    for drawing, draw in DRAWINGS.items():
        right = 100 * float(np.mean(_predicted(model, draw, digits) == labels))
        template = Row("redrawn_digits", drawing, "%", "ours", ours=True, data=f"{len(digits)} of {name}")
        yield session.row(template, [right])
        session.spent(FILE_COST * len(digits), f"redrawn digits, {drawing}: {right:.2f}%")


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return 1.0 if session.quick else TRAIN_COST + len(DRAWINGS) * 10_000 * FILE_COST


BENCHMARK = Benchmark("redrawn_digits", "How accurate is a net on digits as people write them?", run, cost)


def _trained(session: Session, name: str) -> Path:
    run, to = session.folder / "redrawn", session.folder / "models" / "redrawn"
    train = ("train", "mnist_conv_32", "--data", name, "--epochs", "5", "--run", str(run))
    for words in (train, ("export", str(run), "--to", str(to))):
        subprocess.run([sys.executable, "-m", "pipelines", *words], cwd=ROOT, check=True, capture_output=True)
    session.spent(TRAIN_COST, "redrawn digits: the net is trained")
    return to / "1"


def _predicted(model: Model, draw: Drawing, digits: np.ndarray) -> np.ndarray:
    """Predicts the classes of redrawn digits, int64 [n]."""

    def see(number: int) -> np.ndarray:
        file = draw(digits[number].astype(np.float32), np.random.default_rng((SEED, number)))
        return model.to_input(image_files.decode(file, f"digit {number}"))

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        images = np.stack(list(executor.map(see, range(len(digits)))))
    batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    return np.concatenate([model.predict(batch)[PROBABILITIES].argmax(-1) for batch in batches])


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
    height, width = ink.shape
    down, across = np.linspace(-0.5, 0.5, height)[:, None], np.linspace(-0.5, 0.5, width)[None]
    slopes = random.uniform(-40, 40, 2)
    light = random.uniform(140, 230) + slopes[0] * down + slopes[1] * across
    grain = random.normal(0, random.uniform(2, 10), ink.shape)
    return _jpeg(light * (1 - ink) + random.uniform(20, 70) * ink + grain)


def transparent(digit: np.ndarray, random: np.random.Generator) -> bytes:
    """Black strokes on a transparent background, as a canvas saves them, anywhere on it, enlarged up to 10 times."""
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
    canvas = np.zeros((height, width), np.float32)
    top, left = random.integers(height - side + 1), random.integers(width - side + 1)
    canvas[top : top + side, left : left + side] = digit
    return canvas


def _png(pixels: np.ndarray) -> bytes:
    return _file(pixels, "PNG", compress_level=1)


def _jpeg(pixels: np.ndarray) -> bytes:
    return _file(pixels, "JPEG", quality=85)


def _file(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()

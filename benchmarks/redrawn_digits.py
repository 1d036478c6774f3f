"""Accuracy on test digits redrawn to look handwritten and photographed, and how many digits are found in an image.

The files are processed as by the endpoint: decoded, converted to the net's input by `picture.onnx`, and classified by
`model.onnx`. No choice of the net depends on these figures, but limits of the conversion were set on drawings of these
digits; docs/log.md has figures for others.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks import data, drawings
from benchmarks.drawings import Drawing
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from pipelines.core.plotting import saved
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.model import Model, Seen, open_model

SEED = 0
BATCH = 256
# Digits of the test split, evenly spaced, and in an image of several.
DIGITS, SEVERAL = 1000, 3
# Digits of each drawing in the figure, and the colour of transparent pixels.
SHOWN, CLEAR = 3, "#cfe2f3"
# Approximate seconds per image file.
FILE_COST = 0.015


def run(session: Session) -> Iterator[Row]:
    """Evaluates the net of the package on each drawing of test digits; if quick, of ten."""
    name = "mnist" if data.is_prepared("mnist") and not session.quick else "mnist_5k"
    model = open_model(Path("mnist"))
    from pipelines.data import sources

    examples = sources.load(name, "test")
    assert isinstance(examples, sources.Examples), "digits fit into memory"
    chosen = np.linspace(0, len(examples.images) - 1, 10 if session.quick else DIGITS).astype(int)
    digits, labels = examples.images[chosen, ..., 0].astype(np.float32), examples.labels[chosen]

    def row(measure: str, right: np.ndarray) -> Row:
        percent = 100 * float(np.mean(right))
        template = Row("redrawn_digits", measure, "%", "ours", ours=True, data=f"{len(digits)} of {name}")
        session.spent(FILE_COST * len(digits), f"redrawn digits, {measure}: {percent:.2f}%")
        return session.row(template, [percent])

    _draw(model, digits[:SHOWN], session.results / "redrawn_digits.png")
    for drawing, draw in drawings.DRAWINGS.items():
        seen = _see(model, draw, digits)
        yield row(drawing, _predicted(model, [one.images[:1] for one in seen]) == labels)
        yield row(f"{drawing}: found as one digit", np.array([_count(one) == 1 for one in seen]))
    for drawing, draw in drawings.WITHOUT_DIGITS.items():
        seen = _see(model, draw, digits)
        yield row(f"{drawing}: no digit found", np.array([_count(one) == 0 for one in seen]))
    several = (np.arange(len(digits))[:, None] + np.arange(SEVERAL)) % len(digits)
    seen = _see(model, drawings.row, digits[several])
    counted = np.array([_count(one) == SEVERAL for one in seen])
    yield row(f"{SEVERAL} in a row: found as several", np.array([_count(one) > 1 for one in seen]))
    yield row(f"{SEVERAL} in a row: found as {SEVERAL}", counted)
    parts = _predicted(model, [one.images[1:] for one, right in zip(seen, counted, strict=True) if right])
    read = np.zeros(len(digits), bool)
    read[counted] = (parts.reshape(-1, SEVERAL) == labels[several[counted]]).all(axis=1)
    yield row(f"{SEVERAL} in a row: all read in order", read)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    files = (len(drawings.DRAWINGS) + len(drawings.WITHOUT_DIGITS) + 1) * DIGITS
    return 1.0 if session.quick else files * FILE_COST


BENCHMARK = Benchmark(
    "redrawn_digits",
    "How accurate is the net of the package on digits redrawn to look handwritten and photographed?",
    run,
    cost,
)


def _see(model: Model, draw: Drawing, digits: np.ndarray) -> list[Seen]:
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        numbers, grey = range(len(digits)), model.manifest.is_grey
        return list(executor.map(lambda number: model.see(_image(draw, digits, number, grey), segments=True), numbers))


def _image(draw: Drawing, digits: np.ndarray, number: int, grey: bool = False) -> np.ndarray:
    """Draws a digit, with random numbers of its own, and decodes the file."""
    file = draw(digits[number], np.random.default_rng((SEED, number)))
    return image_files.decode(file, f"image {number}", grey=grey)


def _count(seen: Seen) -> int:
    assert seen.boxes is not None, "the model is for digits"
    return len(seen.boxes)


def _predicted(model: Model, images: list[np.ndarray]) -> np.ndarray:
    """Predicts the classes of images, int64 [n]."""
    every = np.concatenate(images)
    batches = [every[start : start + BATCH] for start in range(0, len(every), BATCH)]
    return np.concatenate([model.predict(batch)[PROBABILITIES].argmax(-1) for batch in batches])


def _draw(model: Model, digits: np.ndarray, path: Path) -> None:
    """Draws a few digits of each drawing, next to the inputs of the net."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with saved(path, (11, 1.15 * len(drawings.DRAWINGS) / 2 + 0.6)) as figure:
        parts = figure.subfigures(-(-len(drawings.DRAWINGS) // 2), 2, wspace=0.05, squeeze=False).flat
        for part, (name, draw) in zip(parts, drawings.DRAWINGS.items(), strict=False):
            part.suptitle(name, x=0.01, ha="left", fontsize=10)
            for number in range(len(digits)):
                rgba = _image(draw, digits, number)
                file, seen = (part.add_subplot(1, 2 * len(digits), 2 * number + at) for at in (1, 2))
                file.set_facecolor(CLEAR)
                file.imshow(rgba, aspect="equal")
                seen.imshow(model.see(rgba).images[0, ..., 0], cmap="gray", vmin=0, vmax=255)
                for axes in (file, seen):
                    axes.set(xticks=[], yticks=[])
                    axes.grid(visible=False)
                    axes.spines[:].set(visible=True, linewidth=0.5)

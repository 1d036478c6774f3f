"""Accuracy on test digits redrawn as people write and photograph them: see `benchmarks.drawings`.

The files are processed as by the endpoint: decoded, converted to the net's input by `picture.onnx`, and classified by
`model.onnx`. No choice depends on these accuracies: they are evaluated once, like those of `highway evaluate`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks import data, serving
from benchmarks.controller import ROOT
from benchmarks.drawings import DRAWINGS, Drawing
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.model import Model, open_model

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

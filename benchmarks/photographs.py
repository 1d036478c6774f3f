"""The CIFAR nets of the package on test images in forms of photographs, and on what they were not trained for.

Forms are larger, compressed or not square. Of images that show none of the net's classes, the share is measured that
gets an answer with a high probability all the same. The files are processed as by the endpoint: decoded, converted to
the net's input by `picture.onnx`, and classified by `model.onnx`. No choice depends on these figures.
"""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import data
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.model import Model, open_model

# A photograph: the image, uint8 [32, 32, 3], as a file.
Photograph = Callable[[np.ndarray], bytes]
# Nets of the package, and their data sets.
NETS = ("cifar10", "cifar100")
BATCH = 250
IMAGES, QUICK = 2_000, 50
# Approximate seconds per image file.
FILE_COST = 0.015
WHITE = 255
# Probability above which an answer seems certain, and start of the names of such shares.
SURE, UNFAMILIAR = 0.9, "above 90%, "


def run(session: Session) -> Iterator[Row]:
    """Classifies the test images of each net in each form."""
    nets = [net for net in NETS if data.is_prepared(net)]
    for net in [net for net in NETS if net not in nets]:
        session.note(f"photographs: {net} is skipped, because it is not prepared (highway data prepare {net})")
    examples = {net: _examples(net, QUICK if session.quick else IMAGES) for net in nets}
    models = {net: open_model(Path(net)) for net in nets}
    for name, photograph in PHOTOGRAPHS.items():
        for net, (images, labels) in examples.items():
            right = np.argmax(_probabilities(models[net], photograph, images), -1) == labels
            yield _row(session, net, name, right, f"{len(images):,} test images")
    for net in nets:
        for name, images in _unfamiliar(net, examples).items():
            sure = np.max(_probabilities(models[net], _file, images), -1) > SURE
            yield _row(session, net, f"{UNFAMILIAR}{name}", sure, f"{len(images):,} images")


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return len(NETS) * (len(PHOTOGRAPHS) + 2) * FILE_COST * (QUICK if session.quick else IMAGES)


BENCHMARK = Benchmark("photographs", "How accurate are the packaged nets on photographs of other sizes?", run, cost)


def _row(session: Session, net: str, measure: str, found: np.ndarray, images: str) -> Row:
    share = 100 * float(np.mean(found))
    session.spent(FILE_COST * len(found), f"photographs, {net}, {measure}: {share:.2f}%")
    return session.row(Row("photographs", measure, "%", net, ours=True, data=images), [share])


def _unfamiliar(net: str, examples: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns images that show no class of a net, by what they are: those of the other data set, and noise."""
    images = {f"test images of {other}": examples[other][0] for other in examples if other != net}
    shape = examples[net][0].shape
    return {**images, "uniform noise": np.random.default_rng(0).integers(0, 256, shape, np.uint8)}


def _examples(net: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns test images and their labels, evenly spaced in the split."""
    from pipelines.data import sources

    examples = sources.load(net, "test")
    assert isinstance(examples, sources.Examples), "the test images fit into memory"
    chosen = np.linspace(0, len(examples.images) - 1, count).astype(int)
    return examples.images[chosen], examples.labels[chosen]


def _probabilities(model: Model, photograph: Photograph, images: np.ndarray) -> np.ndarray:
    def seen(image: np.ndarray) -> np.ndarray:
        return model.to_input(image_files.decode(photograph(image), "a photograph", side=model.side))

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        inputs = np.stack(list(executor.map(seen, images)))
    batches = [inputs[start : start + BATCH] for start in range(0, len(inputs), BATCH)]
    return np.concatenate([model.predict(batch)[PROBABILITIES] for batch in batches])


def _file(
    image: np.ndarray,
    times: int = 1,
    form: str = "PNG",
    resampling: Image.Resampling = Image.Resampling.BICUBIC,
    **settings: int,
) -> bytes:
    small = Image.fromarray(image)
    large = small.resize((small.width * times, small.height * times), resampling)
    file = io.BytesIO()
    large.save(file, form, **settings)
    return file.getvalue()


def _longer(image: np.ndarray, axis: int) -> np.ndarray:
    """Continues an image at two ends, in a mirror, to half as long again."""
    ends = [(0, 0)] * 3
    ends[axis] = (8, 8)
    return np.pad(image, ends, mode="symmetric")


def _framed(image: np.ndarray, width: int) -> np.ndarray:
    return np.pad(image, ((width, width), (width, width), (0, 0)), constant_values=WHITE)


PHOTOGRAPHS: dict[str, Photograph] = {
    "as they are": _file,
    "JPEG of quality 95": lambda image: _file(image, 1, "JPEG", quality=95),
    "JPEG of quality 75": lambda image: _file(image, 1, "JPEG", quality=75),
    "8 times as large": lambda image: _file(image, 8),
    "8 times as large, linear interpolation": lambda image: _file(image, 8, resampling=Image.Resampling.BILINEAR),
    "8 times as large, JPEG of quality 75": lambda image: _file(image, 8, "JPEG", quality=75),
    "20 times as large, JPEG of quality 40": lambda image: _file(image, 20, "JPEG", quality=40),
    "wide, 3:2, JPEG": lambda image: _file(_longer(image, 1), 8, "JPEG", quality=90),
    "tall, 2:3, JPEG": lambda image: _file(_longer(image, 0), 8, "JPEG", quality=90),
    "in a white frame of 2 pixels": lambda image: _file(_framed(image, 2), 8),
}

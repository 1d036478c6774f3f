"""Time that photographs of up to 12 megapixels take to become pixels, in the formats that the endpoint reads.

Ours is the endpoint's way: a file that is cheap to decode stays in its process, any other is passed to a decoding
process, and the image comes back scaled down. The peer is Pillow in this process, with the scaled decoding that it
offers for JPEG files.
"""

import asyncio
import io
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.controller import ROOT
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from serving.engine.decoding import Decoder
from serving.image_files import PIXELS, SIDE, reduction

SIZES, QUICK_SIZES = ((511, 511), (1152, 1152), (2047, 2047), (4000, 3000)), ((40, 30), (1200, 900))
ROUNDS = 9
# Approximate seconds per megapixel and round.
MEGAPIXEL_COST = 0.05
# Standard deviation of the grain, in levels, without which PNG files of enlarged images are unusually small.
GRAIN = 4.0
FORMATS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "JPEG, quality 90": ("JPEG", {"quality": 90}),
    "progressive JPEG": ("JPEG", {"quality": 90, "progressive": True}),
    "PNG": ("PNG", {}),
    "WEBP, quality 80": ("WEBP", {"quality": 80}),
    "TIFF": ("TIFF", {}),
    "BMP": ("BMP", {}),
}


def run(session: Session) -> Iterator[Row]:
    """Decodes a photograph in each format and size."""
    with ThreadPoolExecutor(1) as executor, asyncio.Runner() as runner:
        decoder = Decoder(executor, processes=1, queue=1, pixels=PIXELS)
        ways = {
            "ours": _Way(lambda file: runner.run(decoder.decode(file, "photograph", lambda rgba: rgba)), ours=True),
            "Pillow": _Way(_with_pillow, ours=False),
        }
        for name, (form, options) in FORMATS.items():
            for size in _sizes(session):
                file = _encoded(_photograph(size), form, options)
                times = _alternate(ways, file, 1 if session.quick else ROUNDS)
                measure = f"{name}: {size[0]:,} x {size[1]:,}"
                line = ", ".join(f"{way} {np.median(found):.1f} ms" for way, found in times.items())
                session.spent(_cost(size, ROUNDS), f"decoding, {measure}: {line}")
                yield from session.rows(Row("decoding", measure, "ms", data=f"{len(file) / 1e6:.3g} MB"), times, ways)
        decoder.close()


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return len(FORMATS) * sum(_cost(size, 1 if session.quick else ROUNDS) for size in _sizes(session))


BENCHMARK = Benchmark("decoding", "How long do photographs of up to 12 megapixels take to decode?", run, cost)


def _sizes(session: Session) -> tuple[tuple[int, int], ...]:
    return QUICK_SIZES if session.quick else SIZES


def _cost(size: tuple[int, int], rounds: int) -> float:
    return MEGAPIXEL_COST * size[0] * size[1] / 1e6 * (rounds + 1)


class _Way(NamedTuple):
    decode: Callable[[bytes], object]
    ours: bool


def _alternate(ways: Mapping[str, _Way], file: bytes, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way.decode(file)
            # The first turn starts the process.
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


@cache
def _photograph(size: tuple[int, int]) -> Image.Image:
    with Image.open(ROOT / "docs" / "images" / "cat.jpg") as image:
        large = np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC), np.float32)
    grain = np.random.default_rng(0).normal(0, GRAIN, large.shape)
    return Image.fromarray((large + grain).clip(0, 255).astype(np.uint8))


def _encoded(image: Image.Image, form: str, options: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def _with_pillow(file: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(file)) as image:
        factor = reduction(*image.size, SIDE)
        image.draft(None, (image.width // factor, image.height // factor))
        whole = image.convert("RGB")
        return np.asarray(whole.reduce(reduction(*whole.size, SIDE)))

"""Accuracy of `highway fit` on a user's own images, next to ten lines of plain Keras that train as long."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from benchmarks.controller import Contestant
from benchmarks.roster import TENSORFLOW
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row

OURS = Contestant("highway fit", "own_images", "project", ("fit",), TENSORFLOW, ours=True)
PLAIN = Contestant("Keras, three convolutions, Adam", "own_images", "project", ("plain",), TENSORFLOW)
# The second one trains for as long as the first took.
CONTESTANTS = (OURS, PLAIN)
# Corners of each shape; a circle is a polygon whose corners cannot be seen.
CORNERS = {"circle": 40, "square": 4, "triangle": 3}
# Images of each shape in each split.
IMAGES, QUICK_IMAGES = {"train": 120, "val": 20, "test": 200}, {"train": 4, "val": 2, "test": 2}
ROUNDS = 3
MINUTES, QUICK_MINUTES = 1.0, 0.01
# Approximate seconds of a process besides its training.
START_COST = 12.0


def run(session: Session) -> Iterator[Row]:
    """Trains on new drawings in each round, Keras for the time that `highway fit` took."""
    images, minutes = (QUICK_IMAGES, QUICK_MINUTES) if session.quick else (IMAGES, MINUTES)
    shares: dict[str, list[float]] = {one.name: [] for one in CONTESTANTS}
    for turn in range(_rounds(session)):
        folder = session.folder / f"shapes_{turn}"
        draw(folder, images, random.Random(turn))
        seconds = 0.0
        for contestant in CONTESTANTS:
            where = f"own images, round {turn + 1}"
            task = {"way": contestant.options[0], "folder": str(folder), "seed": turn, "minutes": minutes}
            if worker := session.start(contestant, json.dumps(task | {"seconds": seconds}), where):
                with worker:
                    if answer := session.ask(worker, 1, where):
                        seconds = 0.0 if session.quick else answer.seconds
                        shares[contestant.name].append(100 * answer.more["accuracy"])
            session.spent(_cost(session) / 2, f"{where}: {contestant.name} has ended")
    count = sum(len(CORNERS) * images[split] for split in ("train", "val"))
    measure = f"test images right after {minutes:g} min on {count} images of three shapes"
    template = Row("own_images", measure, "%", data="drawn")
    for contestant in CONTESTANTS:
        if found := shares[contestant.name]:
            yield session.row(replace(template, contestant=contestant.name, ours=contestant.ours), found)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return _rounds(session) * _cost(session)


BENCHMARK = Benchmark("own_images", "How accurate is `highway fit` next to ten lines of Keras?", run, cost)


def draw(folder: Path, images: dict[str, int], chance: random.Random) -> None:
    """Draws shapes of several sizes and colours at any angle, in a folder for each class of each split."""
    for split, count in images.items():
        for label, corners in CORNERS.items():
            of_class = folder / split / label
            of_class.mkdir(parents=True)
            for number in range(count):
                _drawn(corners, chance).save(of_class / f"{number:03}.png")


def _drawn(corners: int, chance: random.Random) -> Image.Image:
    width, height = chance.randint(30, 80), chance.randint(30, 80)
    image = Image.new("RGB", (width, height), tuple(chance.randint(180, 255) for _ in range(3)))
    radius = min(width, height) * chance.uniform(0.3, 0.45)
    centre = chance.uniform(radius, width - radius), chance.uniform(radius, height - radius)
    colour = tuple(chance.randint(0, 120) for _ in range(3))
    ImageDraw.Draw(image).regular_polygon((*centre, radius), corners, chance.randint(0, 90), colour)
    return image


def _rounds(session: Session) -> int:
    return 1 if session.quick else ROUNDS


def _cost(session: Session) -> float:
    return 2 * (START_COST + 60 * (QUICK_MINUTES if session.quick else MINUTES))

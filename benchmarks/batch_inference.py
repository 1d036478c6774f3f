"""Speed of `highway predict --out` relative to decoding and inference alone."""

import io
import json
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import data, serving
from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row

OURS = Contestant("highway predict --out", "batch_inference", "project", ours=True)
# By batch size; the fastest is the peer.
BARE = {
    size: Contestant(f"decode and run alone, batch {size}", "batch_inference", "project") for size in (32, 128, 256)
}
ROUNDS = 4
DISTINCT = 6000
# Approximate seconds per start and per turn.
START_COST, TURN_COST = 2.0, 8.0


def run(session: Session) -> Iterator[Row]:
    """Measures small images in a tar file and larger ones in a folder; if quick, only the former."""
    version = serving.exported(session)
    name, images, _ = data.mnist(DISTINCT, quick=session.quick)
    small, large = session.folder / "small.tar", session.folder / "large"
    count, large_count = (200, 0) if session.quick else (40_000, 512)
    pack(small, [encoded(image, 28, "PNG") for image in images[:count, ..., 0]], count)
    template = Row("batch_inference", unit="images/s", data=f"{name}, mnist_dense_50")
    yield from _speeds(session, replace(template, measure="28 x 28 PNG files in a tar file"), version, small, count)
    if large_count:
        large.mkdir()
        for number in range(large_count):
            (large / f"{number:04}.jpg").write_bytes(encoded(255 - images[number, ..., 0], 280, "JPEG"))
        template = replace(template, measure="280 x 280 JPEG files in a folder")
        yield from _speeds(session, template, version, large, large_count)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    if session.quick:
        return 4 * START_COST
    return 2 * (1 + len(BARE)) * (START_COST + (1 + ROUNDS) * TURN_COST)


BENCHMARK = Benchmark("batch_inference", "How many files per second does `highway predict` classify?", run, cost)


def encoded(pixels: np.ndarray, side: int, form: str) -> bytes:
    """Resizes a grey image and encodes it."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).save(buffer, form)
    return buffer.getvalue()


def pack(path: Path, contents: list[bytes], count: int) -> None:
    """Writes a tar file of `count` members, cycling through `contents`."""
    with tarfile.open(path, "w") as archive:
        for number, content in enumerate(islice(cycle(contents), count)):
            member = tarfile.TarInfo(f"{number:07}.png")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            archive.members.clear()  # type: ignore[attr-defined]  # else all members stay in memory


def _speeds(session: Session, template: Row, version: Path, images: Path, count: int) -> list[Row]:
    sizes = {0: OURS, **({32: BARE[32]} if session.quick else BARE)}
    answers: dict[str, list[Answer]] = {one.name: [] for one in sizes.values()}
    where, rounds = f"batch inference, {template.measure}", 1 if session.quick else ROUNDS
    with ExitStack() as running:
        workers: list[Worker] = []
        for size, contestant in sizes.items():
            task = {"what": "bare" if size else "job", "model": str(version), "images": [str(images)], "batch": size}
            worker = session.start(contestant, json.dumps(task | {"folder": str(session.folder)}), where)
            if worker:
                workers.append(running.enter_context(worker))
                session.ask(worker, 1, where)
        session.spent(START_COST * len(sizes), f"{where}: warm")
        for turn in range(rounds):
            for worker in workers[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                if answer := session.ask(worker, 1, where):
                    answers[worker.contestant.name].append(answer)
            session.spent(0 if session.quick else TURN_COST * len(sizes), f"{where}: round {turn + 1}")
    speeds = {name: [count / answer.seconds for answer in given] for name, given in answers.items()}
    rows = session.rows(template, speeds, {one.name: one for one in sizes.values()})
    return [replace(row, versions=answers[row.contestant][0].versions) for row in rows]

"""Speed of `highway predict --out` relative to its threads alone, and to decoding and inference alone."""

import io
import json
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
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

Task = dict[str, str | int]
OURS = Contestant("highway predict --out", "batch_inference", "project", ours=True)
# No processes take over.
THREADS = Contestant("threads alone", "batch_inference", "project")
# By batch size; the fastest is the peer.
BARE = {
    size: Contestant(f"decode and run alone, batch {size}", "batch_inference", "project") for size in (32, 128, 256)
}
# The command, and its peer.
RELATIVE_TO_THREADS: tuple[tuple[Contestant, Task], ...] = ((OURS, {"what": "job"}), (THREADS, {"what": "threads"}))
# Small images: next to the bare work; with and without processes, whose start weighs less in longer jobs; and for the
# convolutional net of the package.
FILES, MANY, FEWER = 40_000, 100_000, 10_000
ROUNDS = 4
DISTINCT = 6000
# Approximate seconds per start and per turn.
START_COST, TURN_COST = 2.0, 8.0


def run(session: Session) -> Iterator[Row]:
    """Measures small images in a tar file and in a folder, and larger ones; if quick, only the tar file."""
    version = serving.exported(session)
    name, images, _ = data.mnist(DISTINCT, quick=session.quick)
    small, many, large = session.folder / "small.tar", session.folder / "many.tar", session.folder / "large"
    contents = [encoded(image, 28, "PNG") for image in images[..., 0]]
    count, most, large_count = (200, 200, 0) if session.quick else (FILES, MANY, 512)
    pack(small, contents, count)
    pack(many, contents, most)
    template = Row("batch_inference", unit="images/s", data=f"{name}, mnist_dense_50")
    sizes = [32] if session.quick else [*BARE]
    in_tar = replace(template, measure="28 x 28 PNG files in a tar file")
    yield from _speeds(session, in_tar, version, (small, count), _relative_to_bare(sizes))
    yield from _speeds(session, _both_ways(in_tar), version, (many, most), RELATIVE_TO_THREADS)
    if session.quick:
        return
    folder = session.folder / "small"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"{number:07}.png").write_bytes(contents[number % len(contents)])
    in_folder = _both_ways(replace(template, measure="28 x 28 PNG files in a folder"))
    yield from _speeds(session, in_folder, version, (folder, MANY), RELATIVE_TO_THREADS)
    for path in sorted(folder.iterdir())[FEWER:]:
        path.unlink()
    packaged = replace(in_folder, data=f"{name}, the packaged net mnist", measure=f"{in_folder.measure}, net mnist")
    yield from _speeds(session, packaged, Path("mnist"), (folder, FEWER), RELATIVE_TO_THREADS)
    large.mkdir()
    for number in range(large_count):
        (large / f"{number:04}.jpg").write_bytes(encoded(255 - images[number, ..., 0], 280, "JPEG"))
    template = replace(template, measure="280 x 280 JPEG files in a folder")
    yield from _speeds(session, template, version, (large, large_count), _relative_to_bare(sizes))


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    if session.quick:
        return 6 * START_COST
    # Two measures relative to the bare work, three to threads alone, whose jobs are longer.
    return (2 * (1 + len(BARE)) + 3 * 2 * 2) * (START_COST + (1 + ROUNDS) * TURN_COST)


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


def _relative_to_bare(sizes: Iterable[int]) -> list[tuple[Contestant, Task]]:
    """Returns the command and its peers, the bare loops of some batch sizes."""
    bare: list[tuple[Contestant, Task]] = [(BARE[size], {"what": "bare", "batch": size}) for size in sizes]
    return [(OURS, {"what": "job"}), *bare]


def _both_ways(template: Row) -> Row:
    return replace(template, measure=f"{template.measure}, with and without processes")


def _speeds(
    session: Session,
    template: Row,
    model: Path,
    images: tuple[Path, int],
    tasks: Sequence[tuple[Contestant, Task]],
) -> list[Row]:
    path, count = images
    answers: dict[str, list[Answer]] = {one.name: [] for one, _ in tasks}
    where, rounds = f"batch inference, {template.measure}", 1 if session.quick else ROUNDS
    with ExitStack() as running:
        workers: list[Worker] = []
        for contestant, task in tasks:
            given = {"model": str(model), "images": [str(path)], "folder": str(session.folder), **task}
            worker = session.start(contestant, json.dumps(given), where)
            if worker:
                workers.append(running.enter_context(worker))
                session.ask(worker, 1, where)
        session.spent(START_COST * len(tasks), f"{where}: warm")
        for turn in range(rounds):
            for worker in workers[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                if answer := session.ask(worker, 1, where):
                    answers[worker.contestant.name].append(answer)
            session.spent(0 if session.quick else TURN_COST * len(tasks), f"{where}: round {turn + 1}")
    speeds = {name: [count / answer.seconds for answer in given] for name, given in answers.items()}
    rows = session.rows(template, speeds, {one.name: one for one, _ in tasks})
    return [replace(row, versions=answers[row.contestant][0].versions) for row in rows]

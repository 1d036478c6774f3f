"""Many pictures: speed as a share of decoding and predicting alone."""

import io
import json
import tarfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import data
from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.session import PAUSE, Session
from benchmarks.table import Row

OURS = Contestant("highway predict --out", "many_pictures", "project", ours=True)
# The best of these is what ours is a share of.
BARE = {size: Contestant(f"decode and run alone, batch {size}", "many_pictures", "project") for size in (32, 128, 256)}
ROUNDS, QUICK_ROUNDS = 4, 2
DISTINCT = 6000
# About the seconds of a start and of a turn.
START_COST, TURN_COST = 2.0, 8.0


@dataclass(frozen=True)
class Kind:
    """Some pictures.

    Args:
        name: of the measure.
        words: what to give to `highway predict`.
    """

    name: str
    words: tuple[str, ...]


def run(session: Session, models: Sequence[Path]) -> list[Row]:
    """Measures the speed for small pictures in a tar file and larger ones in a folder.

    Args:
        session: of this run.
        models: version folders of digit models.

    Returns:
        The rows; none without a model.
    """
    if not models:
        session.note("many: skipped, name model versions of digits with --models models/digits/1")
        return []
    count, large = (1000, 20) if session.quick else (40_000, 512)
    name, images, _ = data.mnist(DISTINCT)
    small = [encoded(image, 28, "PNG") for image in images[..., 0]]
    kinds = _kinds(session.folder, small, images[..., 0], count, large)
    rows = []
    for model in models:
        for kind in kinds:
            template = Row("many", kind.name, "pictures/s", data=f"{name}, {model.parent.name}")
            amount = large if kind.words[0].endswith("large") else count
            rows += _speed(session, template, model, kind, amount)
    return rows


def cost(session: Session, models: Sequence[Path]) -> float:
    """About the seconds that `run` takes."""
    if not models:
        return 0.0
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    return len(models) * 2 * (1 + len(BARE)) * (START_COST + (1 + rounds) * TURN_COST / (10 if session.quick else 1))


def _kinds(folder: Path, small: list[bytes], images: np.ndarray, count: int, large: int) -> tuple[Kind, Kind]:
    pack(folder / "small.tar", small, count)
    (folder / "large").mkdir()
    for number in range(large):
        content = encoded(255 - images[number], 280, "JPEG")
        (folder / "large" / f"{number:04}.jpg").write_bytes(content)
    return (
        Kind("28 x 28 PNG files in a tar file", (str(folder / "small.tar"),)),
        Kind("280 x 280 JPEG files in a folder", (str(folder / "large"),)),
    )


def encoded(pixels: np.ndarray, side: int, form: str) -> bytes:
    """A picture file of a grey picture, of another size."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).save(buffer, form)
    return buffer.getvalue()


def pack(path: Path, contents: list[bytes], count: int) -> None:
    """Writes a tar file of as many members, whose contents repeat."""
    with tarfile.open(path, "w") as archive:
        for number, content in enumerate(islice(cycle(contents), count)):
            member = tarfile.TarInfo(f"{number:07}.png")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps them all


def _speed(session: Session, template: Row, model: Path, kind: Kind, count: int) -> list[Row]:
    contestants = [OURS, *BARE.values()]
    answers: dict[str, list[Answer]] = {one.name: [] for one in contestants}
    where = f"many, {template.data}, {kind.name}"
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    with ExitStack() as running:
        workers: list[Worker] = []
        for size, contestant in [(0, OURS), *BARE.items()]:
            what = "bare" if size else "job"
            task = {"what": what, "model": str(model.resolve()), "pictures": kind.words, "batch": size}
            worker = session.start(contestant, json.dumps(task | {"folder": str(session.folder)}), where)
            if worker:
                workers.append(running.enter_context(worker))
                session.ask(worker, 1, where)
        session.spent(START_COST * len(contestants), f"{where}: warm")
        for turn in range(rounds):
            for worker in workers[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                if answer := session.ask(worker, 1, where):
                    answers[worker.contestant.name].append(answer)
            session.spent(TURN_COST * len(contestants), f"{where}: round {turn + 1}")
    speeds = {name: [count / answer.seconds for answer in given] for name, given in answers.items()}
    rows = session.rows(template, speeds, {one.name: one for one in contestants})
    versions = {name: given[0].versions for name, given in answers.items() if given}
    return [replace(row, versions=versions[row.contestant]) for row in rows]

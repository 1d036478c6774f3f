"""Runs that are killed at random moments and gone on with, and what is different in the end."""

import csv
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from benchmarks.controller import ROOT
from benchmarks.session import Session
from benchmarks.table import Row

KILLS, QUICK_KILLS = 50, 3
SEED = 8
BACKENDS = ("tensorflow", "jax")
# Dropout, augmentation, momentum, the mean of the weights and a schedule: all that has a state.
STATES = """--data mnist_5k --model.dropout 0.2 --augment.pad 2 --optimizer.ema 0.99 --optimizer.momentum 0.9
    --schedule.kind cosine --schedule.warmup-steps 5"""
CONVOLUTIONS = f"demo --epochs 4 --model.width 4 {STATES}"
STACK = f"mnist_dense_50 --epochs 20 --model.depth 10 --optimizer.learning-rate 0.05 {STATES}"
# Processors compute convolutions in float16 at a hundredth of their speed.
NETS = {"float32": CONVOLUTIONS, "mixed_bfloat16": CONVOLUTIONS, "mixed_float16": STACK}
PROGRAM = (sys.executable, "-m", "pipelines", "train")
# Of the kills: at any moment from the start of the process. The others come after it has saved for the first time.
FROM_THE_START = 0.25
LOOK = 0.01
NEWEST = Path("checkpoint") / "state.npz"


class FailedError(Exception):
    """A process that was not killed ended with an error."""


@dataclass(frozen=True)
class Command:
    """How a run is started, and gone on with.

    Args:
        run: the run directory; what its processes say goes to a file beside it.
        words: recipe and its fields.
        program: what comes before the words.
        variables: of the environment, beside those of this process.
    """

    run: Path
    words: Sequence[str]
    program: Sequence[str] = PROGRAM
    variables: Mapping[str, str] | None = None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to go on with: the report is written last."""
        return (self.run / "report.md").exists()

    @property
    def left(self) -> float:
        """The share of its steps that is not done, as of its last epoch; all of them before it is made."""
        try:
            record = json.loads((self.run / "run.json").read_bytes())
            config = json.loads((self.run / "config.json").read_bytes())
        except FileNotFoundError:
            return 1.0
        return 1 - float(record["step"] / (config["epochs"] * record["steps_per_epoch"]))

    @property
    def log(self) -> Path:
        """What its processes said."""
        return self.run.with_suffix(".log")

    def start(self) -> "subprocess.Popen[bytes]":
        """A process that starts the run, or goes on with it."""
        words = ["--resume", str(self.run)] if self.run.exists() else [*self.words, "--run", str(self.run)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.program, *words],
                cwd=ROOT,
                env={**os.environ, **(self.variables or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@dataclass(frozen=True)
class Times:
    """Seconds of a process that nobody kills.

    Args:
        whole: from its start to its end.
        saving: from its first checkpoint to its end.
    """

    whole: float
    saving: float

    @property
    def halved(self) -> "Times":
        """For a run that ended before its moment came: the machine had more to do when the times were taken."""
        return Times(self.whole / 2, self.saving / 2)


def train(command: Command) -> Times:
    """Trains to the end without a kill.

    Raises:
        FailedError: the process failed.
    """
    started = time.monotonic()
    before = _stamp(command)
    process = command.start()
    _wait_for_save(process, command, before)
    saved = time.monotonic()
    _expect_success(process, command)
    return Times(time.monotonic() - started, time.monotonic() - saved)


def train_and_kill(command: Command, times: Times, most: int, chance: random.Random) -> int:
    """Trains to the end, with kills at random moments.

    Args:
        command: the run.
        times: of a run that nobody kills.
        most: kills, at most; a process may come to its end before.
        chance: decides the moments.

    Returns:
        How many kills there were.

    Raises:
        FailedError: a process failed that was not killed.
    """
    kills = 0
    while kills < most and not command.finished:
        before, saving = _stamp(command), times.saving * command.left
        process = command.start()
        if chance.random() < FROM_THE_START:
            seconds = chance.uniform(0, times.whole - times.saving + saving)
        else:
            _wait_for_save(process, command, before)
            seconds = chance.uniform(0, saving)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:
            _expect_success(process, command)
    if not command.finished:
        train(command)
    return kills


def differences(one: Path, other: Path) -> list[str]:
    """What two finished runs do not have in common, bit for bit: nothing, if one was only interrupted.

    Compared are all arrays of the checkpoint (weights, optimiser, seeds), metrics.csv short of its seconds, the
    weights of best.keras and of model.keras, and step and metrics of run.json.

    Args:
        one: a run directory.
        other: another.

    Returns:
        Names of files and of what is in them.
    """
    first, second = dict(_contents(one)), dict(_contents(other))
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def run(session: Session) -> list[Row]:
    """Kills runs of each backend, in all precisions, and compares them with one that was not killed.

    Args:
        session: of this run.

    Returns:
        For each backend how many runs ended with other bits.
    """
    chance = random.Random(SEED)
    return [_measured(session, backend, chance) for backend in BACKENDS]


def cost(session: Session) -> float:
    """About the seconds that `run` takes."""
    return len(BACKENDS) * (120.0 if session.quick else 1200.0)


def _measured(session: Session, backend: str, chance: random.Random) -> Row:
    wanted = QUICK_KILLS if session.quick else KILLS
    # As many in each precision.
    share = math.ceil(wanted / len(NETS))
    whole: dict[str, tuple[Path, Times]] = {}
    runs = different = 0
    kills = dict.fromkeys(NETS, 0)
    while min(kills.values()) < share:
        precision = min(kills, key=kills.__getitem__)
        words = [*NETS[precision].split(), "--precision", precision]
        variables = {"KERAS_BACKEND": backend}
        name = session.folder / f"{backend}_{precision}"
        try:
            if precision not in whole:
                whole[precision] = (name, train(Command(name, words, variables=variables)))
            expected, times = whole[precision]
            command = Command(Path(f"{name}_{runs}"), words, variables=variables)
            made = train_and_kill(command, times, share - kills[precision], chance)
        except FailedError as error:
            session.failed.append(f"kill, {backend}, {precision}: {error}")
            break
        if not made:
            whole[precision] = (expected, times.halved)
        kills[precision] += made
        runs += 1
        found = differences(expected, command.run)
        different += bool(found)
        session.disagreements += [f"kill, {backend}, {precision}: {one} is another" for one in found]
        session.spent(
            cost(session) / 2 * made / wanted, f"{backend}, {precision}: killed {made} times, {len(found)} differences"
        )
    return Row(
        section="kill",
        measure=f"runs that end with other bits, of {runs} killed {sum(kills.values())} times",
        unit="runs",
        contestant=backend,
        ours=True,
        precision=", ".join(NETS),
        median=different,
        low=different,
        high=different,
        rounds=runs,
        machine=session.machine,
        command=session.command,
    )


def _stamp(command: Command) -> int:
    newest = command.run / NEWEST
    try:
        return newest.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _wait_for_save(process: "subprocess.Popen[bytes]", command: Command, before: int) -> None:
    while process.poll() is None and _stamp(command) == before:
        time.sleep(LOOK)


def _expect_success(process: "subprocess.Popen[bytes]", command: Command) -> None:
    if process.wait():
        raise FailedError(f"status {process.returncode}: {command.log.read_text(errors='replace')[-2000:]}")


def _contents(run: Path) -> Iterator[tuple[str, object]]:
    with np.load(run / NEWEST) as arrays:
        yield from ((f"{NEWEST} {name}", arrays[name].tobytes()) for name in arrays.files if name != "head")
    with (run / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield from ((f"metrics.csv {row['epoch']} {name}", row[name]) for name in row if name != "seconds")
    for name in ("best.keras", "model.keras"):
        yield from ((f"{name} {path}", value) for path, value in _weights(run / name))
    record = json.loads((run / "run.json").read_bytes())
    yield from ((f"run.json {name}", record[name]) for name in ("state", "step", "metrics", "gates"))


def _weights(path: Path) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found.append((name, item[()].tobytes()))

    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visititems(keep)
    return found

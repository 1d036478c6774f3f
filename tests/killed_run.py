"""Runs that are killed at random moments and resumed, and a bit-for-bit comparison with undisturbed ones."""

import csv
import io
import json
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).parents[1]
PROGRAM = (sys.executable, "-m", "pipelines", "train")
# Share of kills at any moment since the process started; the others come after its first checkpoint.
FROM_THE_START = 0.25
LOOK = 0.01
NEWEST = Path("checkpoint") / "state.npz"


class FailedError(Exception):
    """A process that was not killed ended with an error."""


@dataclass(frozen=True)
class Command:
    """Starts or resumes a run.

    Args:
        run: the run directory; the output of its processes goes to a file next to it.
        words: recipe and its fields.
        program: the command that they are passed to.
    """

    run: Path
    words: Sequence[str]
    program: Sequence[str] = PROGRAM

    @property
    def finished(self) -> bool:
        """True if the run is complete: the report is written last."""
        return (self.run / "report.md").exists()

    @property
    def left(self) -> float:
        """The share of steps left after the last complete epoch; 1 before the run directory exists."""
        try:
            record = json.loads((self.run / "run.json").read_bytes())
            config = json.loads((self.run / "config.json").read_bytes())
        except FileNotFoundError:
            return 1.0
        return 1 - float(record["step"] / (config["epochs"] * record["steps_per_epoch"]))

    @property
    def log(self) -> Path:
        """The output of its processes."""
        return self.run.with_suffix(".log")

    def start(self) -> "subprocess.Popen[bytes]":
        """Starts a process that begins the run, or resumes it."""
        words = ["--resume", str(self.run)] if self.run.exists() else [*self.words, "--run", str(self.run)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.program, *words],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@dataclass(frozen=True)
class Times:
    """Seconds of an undisturbed process.

    Args:
        whole: seconds from its start to its end.
        saving: seconds from its first checkpoint to its end.
    """

    whole: float
    saving: float

    @property
    def halved(self) -> "Times":
        """Returns half of each, for a run that ended before a kill: the machine was busier when they were measured."""
        return Times(self.whole / 2, self.saving / 2)


def train(command: Command) -> Times:
    """Trains to the end, undisturbed.

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
        times: the times of an undisturbed process.
        most: maximum number of kills; the run may end earlier.
        chance: chooses the moments.

    Returns:
        The number of kills.

    Raises:
        FailedError: a process that was not killed failed.
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
    """Compares two finished runs bit for bit.

    Covers all arrays of the checkpoint (weights, optimizer, seeds), metrics.csv without its seconds, steps.csv, the
    weights of best.keras and model.keras, and step and metrics of run.json.

    Args:
        one: a run directory.
        other: another.

    Returns:
        Names of files and of the entries that differ; empty if one run was only interrupted.
    """
    first, second = dict(_contents(one)), dict(_contents(other))
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


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
    if (steps := run / "steps.csv").exists():
        yield "steps.csv", steps.read_bytes()
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

"""`highway tune`: how much sooner several workers are done than one, and memory over many trials."""

import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.controller import ROOT
from benchmarks.session import Session
from benchmarks.table import Row
from pipelines.core import environment
from pipelines.core.plotting import BLUE, ORANGE, STYLE
from pipelines.tuning.search_state import read

# Trials of the same work: of what is searched only numbers change, and hardly.
SEARCH = ("mnist_dense_10", "--data", "mnist_5k", "--search.momentum", "--search.decay", "--search.activation")
EQUAL = ("--search.transform-bias", "-2.1", "-1.9", "--search.learning-rate", "0.05", "0.06")
EPOCHS, QUICK_EPOCHS = 100, 2
PER_WORKER, QUICK_PER_WORKER = 8, 2
ROUNDS, QUICK_ROUNDS = 2, 1
MANY, QUICK_MANY = 200, 6
# About the seconds of a start, of a trial's compilation and of an epoch.
START, COMPILED, EPOCH = 10.0, 4.0, 0.15
LOOK = 1.0


@dataclass(frozen=True)
class Crew:
    """Workers that search.

    Args:
        name: in the table.
        workers: how many.
        cores: that they may use together.
        ours: whether it is what is compared with the other.
    """

    name: str
    workers: int
    cores: list[int]
    ours: bool


def run(session: Session) -> list[Row]:
    """Measures trials a second of one worker on one core, of one on all, and of one on each; then memory.

    Args:
        session: of this run.

    Returns:
        The rows; the ratio is to the first.
    """
    cores = environment.available()
    epochs = QUICK_EPOCHS if session.quick else EPOCHS
    trials = len(cores) * (QUICK_PER_WORKER if session.quick else PER_WORKER)
    crews = [
        Crew("1 worker on 1 core", 1, cores[:1], ours=False),
        Crew(f"1 worker on {len(cores)} cores", 1, cores, ours=True),
        Crew(f"{len(cores)} workers on 1 core each", len(cores), cores, ours=True),
    ]
    speeds: dict[str, list[float]] = {crew.name: [] for crew in crews}
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    for turn in range(rounds):
        for crew in crews[:: -1 if turn % 2 else 1]:
            folder = session.folder / f"{crew.workers}-on-{len(crew.cores)}-{turn}"
            started = time.perf_counter()
            process = _start(folder, crew, epochs, trials)
            for _ in _watched(process, folder):
                pass
            if process.returncode:
                session.failed.append(f"tune: {crew.name} ended with status {process.returncode}")
                return []
            speeds[crew.name].append(trials / (time.perf_counter() - started))
        session.spent(_round(session) / rounds, f"tune: round {turn + 1}")
    _memory(session, crews[-1])
    template = Row("tune", f"a search of {trials} equal trials, start included", "trials/s", depth=10, width=50)
    return session.rows(template, speeds, {crew.name: crew for crew in crews})


def cost(session: Session) -> float:
    """About the seconds that `run` takes."""
    many = (QUICK_MANY if session.quick else MANY) * (COMPILED + EPOCH) / len(environment.available())
    return _round(session) + many + START


def _round(session: Session) -> float:
    epochs = QUICK_EPOCHS if session.quick else EPOCHS
    trials = QUICK_PER_WORKER if session.quick else PER_WORKER
    one = START + len(environment.available()) * trials * (COMPILED + epochs * EPOCH)
    return (QUICK_ROUNDS if session.quick else ROUNDS) * 2.5 * one


def _start(folder: Path, crew: Crew, epochs: int, trials: int) -> "subprocess.Popen[bytes]":
    words = [*SEARCH, *EQUAL, "--epochs", f"{epochs}", "--trials", f"{trials}", "--workers", f"{crew.workers}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "tune", *words, "--to", str(folder)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    if hasattr(os, "sched_setaffinity"):
        # Before it counts its cores: what it starts inherits them.
        os.sched_setaffinity(process.pid, crew.cores)
    return process


def _watched(process: "subprocess.Popen[bytes]", folder: Path) -> Iterator[tuple[int, float]]:
    """Trials that are done and MiB of the largest process of the search, from time to time until it ends."""
    while process.poll() is None:
        time.sleep(LOOK)
        state = read(folder)
        done = sum(trial.over for trial in state.trials) if state else 0
        yield done, max((_resident(pid) for pid in _children(process.pid)), default=0.0)


def _memory(session: Session, crew: Crew) -> None:
    folder, trials = session.folder / "memory", QUICK_MANY if session.quick else MANY
    process = _start(folder, crew, 1, trials)
    points = [(done, resident) for done, resident in _watched(process, folder) if done]
    if process.returncode or not points:
        session.failed.append(f"tune: the search of {trials} trials ended with status {process.returncode}")
        return
    session.results.mkdir(parents=True, exist_ok=True)
    with (session.results / "tune_memory.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("trials", "largest_process_mib"), *points])
    draw(points, session.results / "tune_memory.png", session.machine)


def draw(points: list[tuple[int, float]], path: Path, machine: str) -> None:
    """Draws the memory of the largest process of a search over its trials.

    Args:
        points: trials done, MiB.
        path: of the figure.
        machine: for its title.
    """
    highest: dict[int, float] = {}
    for done, resident in points:
        highest[done] = max(resident, highest.get(done, 0.0))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(list(highest), list(highest.values()), color=BLUE, lw=1.2)
        axes.axhline(max(highest.values()), color=ORANGE, ls=":", lw=1.2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("trials done")
        axes.set_ylabel("largest process (MiB)")
        figure.suptitle(f"highway tune, trials of one epoch: workers make place for fresh ones\n{machine}", fontsize=9)
        figure.savefig(path, dpi=120)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _resident(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0

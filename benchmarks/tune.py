"""Speed of `highway tune`: trials per second with several workers and with one."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller import ROOT
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from pipelines.core import environment

# Trials of equal work: only numeric settings differ, and only a little.
SEARCH = ("mnist_dense_10", "--data", "mnist_5k", "--search.momentum", "--search.decay", "--search.activation")
EQUAL = ("--search.transform-bias", "-2.1", "-1.9", "--search.learning-rate", "0.05", "0.06")
EPOCHS, PER_WORKER, ROUNDS = 100, 4, 2
# Approximate seconds per start, per compilation of a trial, and per epoch.
START, COMPILED, EPOCH = 10.0, 4.0, 0.15


@dataclass(frozen=True)
class Workers:
    """Workers of a search, and the cores they share.

    Args:
        name: name in the table.
        count: number of workers.
        cores: cores that they may use together.
        ours: False for the baseline that the others are compared with.
    """

    name: str
    count: int
    cores: list[int]
    ours: bool


def run(session: Session) -> list[Row]:
    """Measures one worker on one core, one on all, and one on each; if quick, only the first, for one trial."""
    cores = environment.available()
    ways = [
        Workers("1 worker on 1 core", 1, cores[:1], ours=False),
        Workers(f"1 worker on {len(cores)} cores", 1, cores, ours=True),
        Workers(f"{len(cores)} workers on 1 core each", len(cores), cores, ours=True),
    ][: 1 if session.quick else None]
    epochs, trials = (1, 1) if session.quick else (EPOCHS, len(cores) * PER_WORKER)
    speeds: dict[str, list[float]] = {way.name: [] for way in ways}
    rounds = 1 if session.quick else ROUNDS
    for turn in range(rounds):
        for way in ways[:: -1 if turn % 2 else 1]:
            started = time.perf_counter()
            status = _search(session.folder / f"{way.count}-on-{len(way.cores)}-{turn}", way, epochs, trials)
            if status:
                session.failed.append(f"tune: {way.name} ended with status {status}")
                return []
            speeds[way.name].append(trials / (time.perf_counter() - started))
        session.spent(cost(session) / rounds, f"tune: round {turn + 1}")
    template = Row("tune", f"a search of {trials} equal trials, start included", "trials/s", depth=10, width=50)
    return session.rows(template, speeds, {way.name: way for way in ways})


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    if session.quick:
        return START + COMPILED
    return ROUNDS * 2.5 * (START + len(environment.available()) * PER_WORKER * (COMPILED + EPOCHS * EPOCH))


BENCHMARK = Benchmark("tune", "How much faster do several workers search?", run, cost)


def _search(folder: Path, way: Workers, epochs: int, trials: int) -> int:
    words: Sequence[str] = [
        *SEARCH, *EQUAL, "--epochs", f"{epochs}", "--trials", f"{trials}", "--workers", f"{way.count}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "tune", *words, "--to", str(folder)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    if hasattr(os, "sched_setaffinity"):
        # In effect before the process counts its cores; its workers inherit it.
        os.sched_setaffinity(process.pid, way.cores)
    return process.wait()

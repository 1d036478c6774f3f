"""Training by two processes on one core each, relative to one process on one core, and the time of their exchanges.

The processes are started by Keras's three variables, as on two machines. Speeds are those after the first epoch, in
which programs are compiled; a process of two trains on half of each batch. Epochs are shorter than those of a recipe,
so that the work of a single process at their end, such as saving, weighs more.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import data, roster
from benchmarks.controller import ROOT, Contestant
from benchmarks.session import Session
from benchmarks.table import Row
from pipelines.core import environment
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX
from pipelines.training import metrics_file

ONE = Contestant("one process on one core", "", ours=False)
TWO = Contestant("two processes on one core each", "", ours=True)
WAYS = {ONE.name: 1, TWO.name: 2}
PATIENCE = 300
# Sizes of the summed arrays, in megabytes: those of the gradients of mnist_conv_32 and of cifar10_19.
SUMMED = (0.6, 9.0)
SUM_COST = 15.0


@dataclass(frozen=True)
class Training:
    """Runs whose speed is measured.

    Args:
        recipe: the recipe, with its batch size.
        data: data set.
        images: images of an epoch.
        epochs: number of epochs, of which the first does not count.
        rounds: turns of one process and of two; 0 measures one process, once.
        cost: approximate seconds of a run.
    """

    recipe: str
    data: str
    images: int
    epochs: int
    rounds: int
    cost: float


TRAININGS = (
    Training("mnist_conv_32", "mnist", images=2_000, epochs=3, rounds=3, cost=40.0),
    Training("mnist_dense_50", "mnist", images=20_000, epochs=5, rounds=1, cost=20.0),
    Training("cifar10_19", "cifar10", images=100, epochs=3, rounds=0, cost=45.0),
)
COST = sum(one.cost * (2 * one.rounds or 1) for one in TRAININGS) + SUM_COST


def measure(session: Session) -> Iterator[Row]:
    """Measures all trainings whose data are prepared, and the time of a sum over both processes."""
    cores = environment.available()
    if len(cores) < len(WAYS):
        session.note("cluster: two processes are not trained, because there is one core")
        session.expect(-COST)
        return
    for training in TRAININGS:
        if data.is_prepared(training.data):
            yield from _speeds(session, training, cores)
        else:
            session.note(f"cluster: {training.recipe} is skipped, {training.data} is not prepared")
            session.expect(-training.cost * (2 * training.rounds or 1))
    for size, milliseconds in _sums(session, cores):
        template = Row("cluster", f"sum of {size:g} MB over two processes", "ms", TWO.name, ours=True)
        yield session.row(template, milliseconds)


def speed(rows: Sequence[Mapping[str, float]], images: int) -> float:
    """Computes images per second after the first epoch.

    Args:
        rows: rows of metrics.csv.
        images: images of an epoch.

    Example:
        speed([{"seconds": 9.0}, {"seconds": 10.0}, {"seconds": 11.0}], 500)  # 500.0
    """
    return images * (len(rows) - 1) / (rows[-1]["seconds"] - rows[0]["seconds"])


def _speeds(session: Session, training: Training, cores: list[int]) -> list[Row]:
    ways = WAYS if training.rounds else {ONE.name: 1}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    batch = 0
    for turn in range(max(1, training.rounds)):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            run = session.folder / f"{training.recipe}-{ways[name]}-{turn}"
            if problem := _train(training, run, cores[: ways[name]]):
                session.failed.append(f"cluster: {training.recipe}, {name}: {problem}")
            else:
                speeds[name].append(speed(metrics_file.read(run / "metrics.csv"), training.images))
                batch = json.loads((run / "config.json").read_text())["batch_size"]
            session.spent(training.cost, f"cluster: {training.recipe}, {name}")
    template = Row("cluster", f"training of {training.recipe}", "images/s", batch=batch, data=training.data)
    versions = " ".join(f"{name} {version}" for name, version in environment.versions(("jax", "keras")).items())
    return [replace(row, versions=versions) for row in session.rows(template, speeds, {ONE.name: ONE, TWO.name: TWO})]


def _train(training: Training, run: Path, cores: list[int]) -> str:
    """Trains with a process on each core; returns the error, if any."""
    words = [
        *("-m", "pipelines", "train", training.recipe, "--run", str(run), "--data", training.data, "--validation", "0"),
        *("--subset.train", f"{training.images}", "--epochs", f"{training.epochs}", "--precision", "float32"),
    ]
    return _together(words, cores, [run.with_suffix(f".{index}") for index in range(len(cores))])


def _sums(session: Session, cores: list[int]) -> Iterator[tuple[float, list[float]]]:
    words = ["-m", "benchmarks.contestants.all_reduce", *map(str, SUMMED)]
    outputs = [session.folder / f"sums.{index}" for index in range(len(WAYS))]
    problem = _together(words, cores[: len(WAYS)], outputs)
    session.spent(SUM_COST, "cluster: sums over two processes")
    if problem:
        session.failed.append(f"cluster: sums over two processes: {problem}")
        return
    yield from zip(SUMMED, json.loads(outputs[0].read_text().splitlines()[-1]), strict=True)


def _together(words: list[str], cores: list[int], outputs: list[Path]) -> str:
    """Runs a program in a process on each core, connected if there are several; returns the error, if any."""
    address = f"127.0.0.1:{_free_port()}"
    processes = []
    for index, (core, output) in enumerate(zip(cores, outputs, strict=True)):
        variables = {**os.environ, **roster.JAX, "TF_CPP_MIN_LOG_LEVEL": "2"}
        if len(cores) > 1:
            variables |= {ADDRESSES: address, COUNT: str(len(cores)), INDEX: str(index)}
        with output.open("wb") as file:
            command = [sys.executable, *words]
            process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=file, stderr=subprocess.STDOUT)
        # In effect before the process counts its cores; its children inherit it.
        os.sched_setaffinity(process.pid, {core})
        processes.append(process)
    try:
        statuses = [process.wait(PATIENCE) for process in processes]
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE} s"
    finally:
        for process in processes:
            process.kill()
    text = "".join(path.read_text(errors="replace") for path in outputs)
    return f"status {statuses}: {text[-500:]}" if any(statuses) else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

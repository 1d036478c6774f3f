"""Training by two processes on one core each, relative to one process on one core, and the time of their exchanges.

The processes are started by Keras's three variables, as on two machines. Speeds are those after the first epoch, in
which programs are compiled; a process of two trains on half of each batch. Epochs are shorter than those of a recipe,
so that the work of a single process at their end, such as saving, weighs more. Two runs that have nothing to do with
each other show what two cores of this machine can do together: they share its caches, its memory and its clock.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import data, roster
from benchmarks.controller import ROOT, Contestant
from benchmarks.session import Session
from benchmarks.table import Row
from pipelines.core import environment
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX
from pipelines.core.run import open_run
from pipelines.training import metrics_file

ONE = Contestant("one process on one core", "", ours=False)
TWO = Contestant("two processes on one core each", "", ours=True)
APART = Contestant("two separate runs on one core each", "", ours=True)
WAYS = (ONE, TWO, APART)
# Processes that train one run.
TOGETHER = 2
PATIENCE = 300
# Sizes of the summed arrays, in megabytes: those of the gradients of mnist_conv_32 and of cifar10_19.
SUMMED = (0.6, 9.0)
SUM_COST = 15.0
# Of a table of noise; its speed is measured, not its use.
ROWS, COLUMNS, TARGET = 4_000, 10, "y"


@dataclass(frozen=True)
class Training:
    """Runs whose speed is measured.

    Args:
        recipe: the recipe, with its batch size.
        data: data set; "" writes a table.
        images: training images of an epoch; None for all examples.
        epochs: number of epochs, of which the first does not count.
        rounds: turns of all ways; 0 measures one process, once.
        cost: approximate seconds of a run.
    """

    recipe: str
    data: str
    images: int | None
    epochs: int
    rounds: int
    cost: float


# One recipe for each preset of `highway_keras`.
TRAININGS = (
    Training("mnist_conv_32", "mnist", images=2_000, epochs=3, rounds=3, cost=40.0),
    Training("mnist_dense_50", "mnist", images=20_000, epochs=5, rounds=1, cost=20.0),
    Training("mnist_conv_32_modern", "mnist", images=2_000, epochs=3, rounds=1, cost=40.0),
    Training("mnist_conv_16", "mnist", images=1_000, epochs=3, rounds=0, cost=20.0),
    Training("cifar10_19", "cifar10", images=100, epochs=3, rounds=0, cost=45.0),
    Training("cifar100_19", "cifar100", images=100, epochs=3, rounds=0, cost=45.0),
    Training("cifar10_modern", "cifar10", images=250, epochs=3, rounds=0, cost=75.0),
    Training("cifar100_modern", "cifar100", images=250, epochs=3, rounds=0, cost=75.0),
    Training("fitnet_a", "cifar10", images=100, epochs=3, rounds=0, cost=30.0),
    Training("fitnet_b", "cifar10", images=100, epochs=3, rounds=0, cost=45.0),
    Training("fitnet_c", "cifar10", images=100, epochs=3, rounds=0, cost=60.0),
    Training("mnist_dense_10", "mnist", images=20_000, epochs=5, rounds=0, cost=20.0),
    Training("mnist_dense_100", "mnist", images=20_000, epochs=3, rounds=0, cost=25.0),
    Training("cifar100_dense_50", "cifar100", images=20_000, epochs=3, rounds=0, cost=30.0),
    Training("mnist_dense_1000", "mnist", images=6_400, epochs=3, rounds=0, cost=45.0),
    Training("table", "", images=None, epochs=10, rounds=0, cost=20.0),
    Training("factor", "fama_french", images=None, epochs=10, rounds=0, cost=15.0),
)
COST = sum(one.cost * (len(WAYS) * one.rounds or 1) for one in TRAININGS) + SUM_COST


def measure(session: Session) -> Iterator[Row]:
    """Measures all trainings whose data are prepared, and the time of a sum over both processes."""
    cores = environment.available()
    if len(cores) < TOGETHER:
        session.note("cluster: two processes are not trained, because there is one core")
        session.expect(-COST)
        return
    for training in TRAININGS:
        if not training.data:
            yield from _speeds(session, replace(training, data=str(_table(session.folder))), cores)
        elif data.is_prepared(training.data):
            yield from _speeds(session, training, cores)
        else:
            session.note(f"cluster: {training.recipe} is skipped, {training.data} is not prepared")
            session.expect(-training.cost * (len(WAYS) * training.rounds or 1))
    for size, milliseconds in _sums(session, cores):
        template = Row("cluster", f"sum of {size:g} MB over two processes", "ms", TWO.name, ours=True)
        yield session.row(template, milliseconds)


def speed(rows: Sequence[Mapping[str, float]], images: int) -> float:
    """Computes images per second after the first epoch.

    Args:
        rows: rows of metrics.csv.
        images: training images of an epoch; None for all examples.

    Example:
        speed([{"seconds": 9.0}, {"seconds": 10.0}, {"seconds": 11.0}], 500)  # 500.0
    """
    return images * (len(rows) - 1) / (rows[-1]["seconds"] - rows[0]["seconds"])


def _speeds(session: Session, training: Training, cores: list[int]) -> list[Row]:
    ways = {way.name: way for way in (WAYS if training.rounds else (ONE,))}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    batch = 0
    for turn in range(max(1, training.rounds)):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            used = cores[: 1 if name == ONE.name else TOGETHER]
            folder = session.folder / f"{training.recipe}-{name}-{turn}"
            runs = [folder / f"{index}" for index in range(len(used) if name == APART.name else 1)]
            folder.mkdir()
            if problem := _train(training, runs, used):
                session.failed.append(f"cluster: {training.recipe}, {name}: {problem}")
            else:
                speeds[name].append(sum(speed(metrics_file.read(run / "metrics.csv"), _examples(run)) for run in runs))
                batch = open_run(runs[0]).config.batch_size
            session.spent(training.cost, f"cluster: {training.recipe}, {name}")
    template = Row("cluster", f"training of {training.recipe}", "images/s", batch=batch, data=training.data)
    versions = " ".join(f"{name} {version}" for name, version in environment.versions(("jax", "keras")).items())
    return [replace(row, versions=versions) for row in session.rows(template, speeds, ways)]


def _train(training: Training, runs: list[Path], cores: list[int]) -> str:
    """Trains one run with a process on each core, or a run on each core; returns the error, if any."""
    options = [
        *(training.recipe, "--data", training.data, "--validation", "0", "--epochs", f"{training.epochs}"),
        *("--precision", "float32"),
        *(["--subset.train", f"{training.images}"] if training.images else []),
        *([] if training.recipe != "table" else ["--target", TARGET]),
    ]
    # One command for each process.
    each = runs * len(cores) if len(runs) == 1 else runs
    commands = [["-m", "pipelines", "train", *options, "--run", str(run)] for run in each]
    outputs = [runs[0].with_suffix(f".{index}") for index in range(len(cores))]
    return _together(commands, cores, outputs, connected=len(runs) < len(cores))


def _examples(run: Path) -> int:
    return open_run(run).record.data.counts["train"]


def _table(folder: Path) -> Path:
    """Writes a table with as many columns as the preset for tables has inputs, and one to predict."""
    path = folder / "table.csv"
    numbers = np.random.default_rng(0).normal(size=(ROWS, COLUMNS + 1)).round(3)
    header = ",".join([*(f"x{index}" for index in range(COLUMNS)), TARGET])
    np.savetxt(path, numbers, "%g", ",", header=header, comments="")
    return path


def _sums(session: Session, cores: list[int]) -> Iterator[tuple[float, list[float]]]:
    words = ["-m", "benchmarks.contestants.all_reduce", *map(str, SUMMED)]
    outputs = [session.folder / f"sums.{index}" for index in range(TOGETHER)]
    problem = _together([words] * TOGETHER, cores[:TOGETHER], outputs, connected=True)
    session.spent(SUM_COST, "cluster: sums over two processes")
    if problem:
        session.failed.append(f"cluster: sums over two processes: {problem}")
        return
    yield from zip(SUMMED, json.loads(outputs[0].read_text().splitlines()[-1]), strict=True)


def _together(commands: list[list[str]], cores: list[int], outputs: list[Path], *, connected: bool) -> str:
    """Runs a program on each core, all at once; returns the error, if any.

    Args:
        commands: words after Python's.
        cores: the core of each.
        outputs: file for the output of each.
        connected: whether they are the processes of one run.
    """
    address = f"127.0.0.1:{_free_port()}"
    processes = []
    for index, (words, core, output) in enumerate(zip(commands, cores, outputs, strict=True)):
        variables = {**os.environ, **roster.JAX, "TF_CPP_MIN_LOG_LEVEL": "2"}
        if connected:
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

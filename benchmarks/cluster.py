"""Two hosts of one core relative to one, and a Ray cluster on this machine: its start, tasks, predictions and losses.

Nodes of the cluster are groups of processes on this machine, with Ray's own settings. Bulk prediction by tasks with a
core each is compared with the threads of one process on as many cores and with one thread on one core, once everything
runs; and with the command alone, from its start, on a running cluster. A node is killed while two train a run; the row
has the time until the other one has trained a new step.
"""

import importlib.util
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import data, hosts, roster, serving
from benchmarks.batch_inference import encoded
from benchmarks.controller import Contestant, Worker
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row
from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.training import metrics_file
from tests.ray_cluster import LocalCluster

STARTS, PREDICTIONS, COMMANDS, LOSSES = 3, 3, 1, 2
# In shorter jobs, the replacement of processes after some tasks would weigh more than in long ones.
IMAGES = 40_000
# Images that each net of the package predicts for its speed alone.
DIGITS, PHOTOGRAPHS = 4000, 500
TASKS = 200
START_COST, TASKS_COST, TURN_COST, COMMAND_COST, LOSS_COST, PACKAGED_COST = 8.0, 25.0, 8.0, 15.0, 70.0, 15.0
PROGRAM = (sys.executable, "-m", "pipelines")
ONE, THREADS, ON_CLUSTER = "one thread on one core", "threads of one process", "tasks on a cluster"
# Which may hand over to processes of its own.
COMMAND = "the command alone"
LOST = re.compile(r"lost after step ([\d,]+)")
# Ray's own settings are not changed, as those of the tests are.
SETTINGS: dict[str, str] = {}


def run(session: Session) -> Iterator[Row]:
    """Measures everything; nothing if quick, because Ray's start takes longer than that may take."""
    if session.quick:
        session.note("cluster: not measured by --quick, because Ray takes long to start")
        return
    if not importlib.util.find_spec("ray"):
        session.note("cluster: skipped, Ray is missing: install highway-keras[cluster]")
        session.expect(-cost(session))
        return
    yield from hosts.measure(session)
    yield from _starts(session)
    version = serving.exported(session)
    session.spent(serving.EXPORT_COST, "cluster: the net is exported")
    with LocalCluster([], SETTINGS) as cluster:
        cluster.add("all", num_cpus=len(environment.available()))
        yield from _tasks(session, cluster)
        yield from _predictions(session, cluster, version)
    yield from _losses(session)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    if session.quick:
        return 0.0
    predicting = 3 * (START_COST + (1 + PREDICTIONS) * TURN_COST) + 2 * COMMANDS * COMMAND_COST
    predicting += 2 * PACKAGED_COST
    others = hosts.COST + STARTS * START_COST + serving.EXPORT_COST + TASKS_COST + LOSSES * LOSS_COST
    return others + predicting


BENCHMARK = Benchmark("cluster", "How much faster are two hosts than one, and how soon?", run, cost)


def _starts(session: Session) -> Iterator[Row]:
    """Measures the start of a head and of a node, each from the start of its process."""
    heads, nodes = [], []
    for turn in range(STARTS):
        started = time.perf_counter()
        with LocalCluster([], SETTINGS) as cluster:
            heads.append(time.perf_counter() - started)
            cluster.add("a")
            nodes.append(time.perf_counter() - started - heads[-1])
        session.spent(START_COST, f"cluster: Ray's start {turn + 1}")
    yield session.row(Row("cluster", "start of Ray's head", "s", "Ray", ours=True), heads)
    yield session.row(Row("cluster", "start of a further node", "s", "Ray", ours=True), nodes)


def _tasks(session: Session, cluster: LocalCluster) -> Iterator[Row]:
    """Measures tasks that do nothing, and the first tasks of two commands; that of the second one imports Keras."""
    template = Row("cluster", contestant="Ray", ours=True)
    for what, end in {"nothing": "the first task ends", "imports": "the first task has imported Keras"}.items():
        with joined(cluster, what, "cluster_tasks", {"what": what}, session.folder) as worker:
            first = session.ask(worker, 1, "cluster: tasks")
            answer = session.ask(worker, TASKS, "cluster: tasks") if what == "nothing" else None
        if first:
            measure = f"from the start of a command until {end}"
            yield session.row(replace(template, measure=measure, unit="s", versions=first.versions), [first.seconds])
        if answer:
            yield session.row(
                replace(template, measure="tasks that do nothing", unit="tasks/s"), [TASKS / answer.seconds]
            )
            each = 1e3 * answer.more["processor_seconds"] / TASKS
            yield session.row(replace(template, measure="time of the command per task", unit="ms"), [each])
    session.spent(TASKS_COST, "cluster: tasks")


def _predictions(session: Session, cluster: LocalCluster, version: Path) -> Iterator[Row]:
    """Compares threads with tasks, and measures the nets of the package in threads."""
    name, digits, _ = data.mnist()
    grey = [encoded(one, 28, "PNG") for one in digits[..., 0]]
    images = _written(session.folder / "images", grey, IMAGES)
    template = Row("cluster", unit="images/s", data=f"{name}, {IMAGES:,} PNG files, mnist_dense_50")
    task = {"what": "threads", "model": str(version), "images": [str(images)], "folder": str(session.folder)}
    with ExitStack() as running:
        workers = {
            name: running.enter_context(
                Worker(Contestant(name, "batch_inference", "project"), json.dumps(task | more), session.folder)
            )
            for name, more in ((THREADS, {}), (ONE, {"core": environment.available()[0]}))
        }
        workers[ON_CLUSTER] = running.enter_context(
            joined(cluster, ON_CLUSTER, "batch_inference", task | {"address": cluster.address}, session.folder)
        )
        # The first turn starts processes.
        for one in workers.values():
            session.ask(one, 1, "cluster: prediction")
        session.spent(3 * (START_COST + TURN_COST), "cluster: prediction, warm")

        def turn(way: str) -> float | None:
            answer = session.ask(workers[way], 1, "cluster: prediction")
            return IMAGES / answer.seconds if answer else None

        warm = replace(template, measure="bulk prediction, with everything running")
        ways = {THREADS: False, ONE: True, ON_CLUSTER: True}
        yield from _alternating(session, warm, turn, ways, rounds=PREDICTIONS, each=TURN_COST)

    def command(way: str) -> float | None:
        out = session.folder / "command.parquet"
        words = [*PROGRAM, "predict", str(version), str(images), "--out", str(out)]
        started = time.perf_counter()
        status, output = cluster.run([*words, *(("--cluster", cluster.address) if way == ON_CLUSTER else ())])
        seconds = time.perf_counter() - started
        if status:
            session.failed.append(f"cluster: highway predict, {way}: {output[-500:]}")
            return None
        out.unlink()
        return IMAGES / seconds

    cold = replace(template, measure="bulk prediction, from the start of the command")
    ways = {COMMAND: False, ON_CLUSTER: True}
    yield from _alternating(session, cold, command, ways, rounds=COMMANDS, each=COMMAND_COST)
    noise = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), np.uint8)
    coloured = [encoded(one, 32, "PNG") for one in noise]
    for net, contents, count in (("mnist", grey, DIGITS), ("cifar10", coloured, PHOTOGRAPHS)):
        yield from _packaged(session, net, _written(session.folder / net, contents, count), count)


def _alternating(
    session: Session,
    template: Row,
    turn: Callable[[str], float | None],
    ours: Mapping[str, bool],
    *,
    rounds: int,
    each: float,
) -> list[Row]:
    """Measures ways in turn, some of them relative to the others: to those that are not ours."""
    ways = {way: Contestant(way, "", ours=is_ours) for way, is_ours in ours.items()}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            time.sleep(PAUSE)
            if (value := turn(way)) is not None:
                found[way].append(value)
        session.spent(len(ways) * each, f"cluster: {template.measure}, round {number + 1}")
    return session.rows(template, found, ways)


def _packaged(session: Session, net: str, images: Path, count: int) -> Iterator[Row]:
    """Measures how many images a net of the package predicts in threads."""
    task = {"what": "threads", "model": net, "images": [str(images)]}
    contestant = Contestant(THREADS, "batch_inference", "project")
    with Worker(contestant, json.dumps(task | {"folder": str(session.folder)}), session.folder) as worker:
        answers = [session.ask(worker, 1, f"cluster: {net}") for _ in range(3)]
    speeds = [count / answer.seconds for answer in answers[1:] if answer]
    template = Row(
        "cluster", f"bulk prediction by the packaged net {net}", "images/s", THREADS, data=f"{count:,} PNG files"
    )
    session.spent(PACKAGED_COST, f"cluster: {net}")
    if speeds:
        yield session.row(template, speeds)


def _losses(session: Session) -> Iterator[Row]:
    """Measures the time from the death of a node to the first step that was not trained before."""
    found = []
    for turn in range(LOSSES):
        with LocalCluster(["a", "b"], SETTINGS) as cluster:
            seconds = _loss(session, cluster, session.folder / f"lost-{turn}")
        session.spent(LOSS_COST, f"cluster: loss of a node {turn + 1}")
        if seconds is not None:
            found.append(seconds)
    if found:
        measure = "from a node's death to the next new step of mnist_conv_32"
        yield session.row(Row("cluster", measure, "s", "two nodes, then one", ours=True), found)


def _loss(session: Session, cluster: LocalCluster, folder: Path) -> float | None:
    name = "mnist" if data.is_prepared("mnist") else "mnist_5k"
    words = [
        *(*PROGRAM, "train", "mnist_conv_32", "--data", name, "--subset.train", "1000", "--precision", "float32"),
        *("--run", str(folder), "--checkpoint-steps", "10", "--cluster", cluster.address),
        *("--hosts", "2", "--min-hosts", "1"),
    ]
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        training = cluster.start(words, roster.JAX, stdout=output)

    def wait(done: Callable[[], bool]) -> bool:
        until = time.monotonic() + hosts.PATIENCE
        while training.poll() is None and time.monotonic() < until:
            if done():
                return True
            time.sleep(0.05)
        session.failed.append(f"cluster: training on two nodes ended early: {log.read_text()[-500:]}")
        return False

    try:
        if not wait(lambda: _step(folder) >= 20):
            return None
        killed = time.perf_counter()
        cluster.kill("b")
        if not wait(lambda: bool(LOST.search(log.read_text()))):
            return None
        before = lost_after(log.read_text())
        return time.perf_counter() - killed if wait(lambda: _step(folder) > before) else None
    finally:
        training.send_signal(signal.SIGTERM)
        training.wait()


def lost_after(output: str) -> int:
    """Returns the last step before a node was lost, from the output of `highway train`."""
    found = LOST.search(output)
    assert found
    return int(found[1].replace(",", ""))


def _step(folder: Path) -> float:
    """Returns the last step of the last epoch that has ended; 0 before the first."""
    rows: Sequence[Mapping[str, float]] = ()
    # It is cut while it is read.
    with suppress(UserError):
        rows = metrics_file.read(folder / "metrics.csv")
    return rows[-1]["step"] if rows else 0.0


def joined(cluster: LocalCluster, name: str, module: str, task: Mapping[str, object], folder: Path) -> Worker:
    """Starts a contestant that uses a cluster, in the network of that cluster.

    Args:
        cluster: the cluster.
        name: name of the contestant.
        module: its module in `benchmarks.contestants`.
        task: its task, to which the address of the cluster is added.
        folder: see `Worker`.
    """
    prefix, variables = tuple(cluster.command(())), cluster.environment
    contestant = Contestant(name, module, "project", prefix=prefix, variables=variables, ours=True)
    return Worker(contestant, json.dumps({"address": cluster.address, **task}), folder)


def _written(folder: Path, contents: Sequence[bytes], count: int) -> Path:
    """Writes a folder of files, cycling through their contents."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07}.png").write_bytes(contents[number % len(contents)])
    return folder

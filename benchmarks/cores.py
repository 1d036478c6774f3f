"""Throughput of the endpoint on all cores relative to one, over HTTP and in process.

Over HTTP, the endpoint on one core is pinned to it. `wrk` may use every core: an endpoint on one core does not have to
share it, one on all cores does, so the ratios are lower bounds. With 16 images per request, `wrk` needs little time. In
process, clients ask the endpoint's own queue.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import data, serving, web_servers
from benchmarks.controller import FailedError
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row
from benchmarks.web_servers import Running, WebServer
from pipelines.core import environment
from serving.engine import trials
from serving.engine.batching import Batcher
from serving.engine.settings import Settings
from serving.model import open_model

# Recipes by the name of the exported model.
RECIPES = {"conv": "mnist_conv_32", "dense": "mnist_dense_50"}
# Connections, and images per request.
LOADS = ((16, 1), (64, 1), (16, 16))
ROUNDS, SECONDS = 5, 3
# Seconds per load in process if quick; `wrk` takes whole seconds.
QUICK_SECONDS = 0.1
EXPORT_COST, START_COST = 60.0, 5.0


@dataclass(frozen=True)
class Way:
    """A way of using cores.

    Args:
        server: the endpoint with its options; the one on one core is the peer of the others.
        cores: the cores that it may use.
    """

    server: WebServer
    cores: list[int]


def run(session: Session) -> Iterator[Row]:
    """Measures both nets; without `wrk`, in process only. If quick, a short dense net."""
    recipes = {"dense": RECIPES["dense"]} if session.quick else RECIPES
    versions = {name: serving.exported(session, recipe, name) for name, recipe in recipes.items()}
    session.spent(0 if session.quick else EXPORT_COST, "cores: the nets are exported")
    source, images, _ = data.mnist(max(count for _, count in LOADS), quick=session.quick)
    for name, version in versions.items():
        template = Row("cores", unit="images/s", data=f"{source}, {RECIPES[name]}")
        yield from _in_process(session, template, version)
    if not web_servers.wrk_is_installed():
        session.note("cores: nothing is measured over HTTP without wrk; Debian has it as the package wrk")
        return
    for name, version in versions.items():
        template = Row("cores", unit="images/s", data=f"{source}, {RECIPES[name]}")
        yield from _over_http(session, template, version, images)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    loads, rounds, seconds = _scope(session)
    nets = 1 if session.quick else len(RECIPES)
    measuring = nets * rounds * seconds * (2 * len(loads) + len(_ways()) * len(loads))
    return (0 if session.quick else EXPORT_COST) + nets * len(_ways()) * START_COST + measuring


BENCHMARK = Benchmark("cores", "How much faster is the endpoint on all cores than on one?", run, cost)


def _scope(session: Session) -> tuple[tuple[tuple[int, int], ...], int, int]:
    """Returns loads, rounds, and seconds per load."""
    return (LOADS[:1], 1, 1) if session.quick else (LOADS, ROUNDS, SECONDS)


def _ways() -> list[Way]:
    cores = environment.available()
    return [
        Way(WebServer("one core"), cores[:1]),
        Way(WebServer("--threads 1", options=("--threads", "1"), ours=True), cores),
        Way(WebServer(f"--threads {len(cores)}", options=("--threads", f"{len(cores)}"), ours=True), cores),
        Way(WebServer(f"--workers {len(cores)}", options=("--workers", f"{len(cores)}"), ours=True), cores),
    ]


def _measure(connections: int, images: int) -> str:
    return f"{connections} connections, {images} image{'s' if images > 1 else ''} per request"


def _over_http(session: Session, template: Row, version: Path, images: np.ndarray) -> Iterator[Row]:
    loads, rounds, seconds = _scope(session)
    ways = {way.server.name: way for way in _ways()}
    found: dict[tuple[int, int], dict[str, list[float]]] = {load: {name: [] for name in ways} for load in loads}
    with ExitStack() as stack:
        running = {}
        for name, way in ways.items():
            running[name] = stack.enter_context(Running(way.server, version.parents[1], version, way.cores))
            running[name].wait(images[0].tobytes())
            running[name].halt()
            session.spent(START_COST, f"cores: {template.data}, {name} answers")
        for turn in range(rounds):
            for name, one in list(running.items())[:: -1 if turn % 2 else 1]:
                one.go()
                for connections, count in loads:
                    script = session.folder / f"cores-{count}.lua"
                    web_servers.write_script(script, one.server.kind, [images[:count].tobytes()])
                    time.sleep(PAUSE)
                    where = f"cores: {template.data}, {name}, {_measure(connections, count)}"
                    try:
                        load = web_servers.load(one.url, script, connections, seconds)
                    except FailedError as error:
                        session.failed.append(f"{where}: {error}")
                        continue
                    if load.failed:
                        session.failed.append(f"{where}: {load.failed} requests failed")
                    found[connections, count][name].append(load.per_second * count)
                one.halt()
                session.spent(seconds * len(loads), f"cores: {template.data}, {name}, round {turn + 1}")
    servers = {name: way.server for name, way in ways.items()}
    for (connections, count), speeds in found.items():
        measure = f"over HTTP, {_measure(connections, count)}"
        yield from session.rows(replace(template, measure=measure, batch=count), speeds, servers)


def _in_process(session: Session, template: Row, version: Path) -> Iterator[Row]:
    loads, rounds, whole = _scope(session)
    seconds = QUICK_SECONDS if session.quick else float(whole)
    servers = {1: WebServer("one thread"), environment.cores(): WebServer("a thread per core", ours=True)}
    for clients, count in loads:
        speeds: dict[str, list[float]] = {server.name: [] for server in servers.values()}
        for turn in range(rounds):
            for threads, server in list(servers.items())[:: -1 if turn % 2 else 1]:
                speeds[server.name].append(_throughput(version, threads, clients, count, seconds))
        session.spent(2 * rounds * seconds, f"cores: {template.data}, in process, {_measure(clients, count)}")
        measure = f"in process, {_measure(clients, count).replace('connections', 'clients')}"
        contestants = {server.name: server for server in servers.values()}
        yield from session.rows(replace(template, measure=measure, batch=count), speeds, contestants)


def _throughput(version: Path, threads: int, clients: int, count: int, seconds: float) -> float:
    """Measures images per second of clients that ask the queue of a model version, each for one request at a time."""
    model, limits = open_model(version), Settings(version)
    images = np.zeros((count, *model.manifest.input.shape[1:]), np.uint8)
    with ThreadPoolExecutor(threads) as executor:
        batcher = Batcher(
            model.predict, limits.batch, clients * count, executor, parallel=threads, cost=trials.cost(model)
        )

        async def client(until: float) -> int:
            answered = 0
            while time.perf_counter() < until:
                answered += len((await batcher.predict(images))["probabilities"])
            return answered

        async def measured() -> float:
            # The queue does not know the time per image before the first batch.
            await batcher.predict(images)
            start = time.perf_counter()
            counts = await asyncio.gather(*(client(start + seconds) for _ in range(clients)))
            return sum(counts) / (time.perf_counter() - start)

        return asyncio.run(measured())

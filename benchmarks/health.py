"""Response time of the health check under load from four hostile clients, and while versions are loaded.

A process of its own asks for `/v2/health/live` every few milliseconds. All processes share the cores of the machine.
The time that this process itself waits for a core between question and answer, which Linux counts, is subtracted; if
the endpoint is at work meanwhile, so is that.
"""

import http.client
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import numpy as np

from benchmarks import data, serving
from benchmarks.hostile_requests import ATTACKS
from benchmarks.known_answers import INFER, infer_message
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.unstable_endpoint import Repository, alone, copied
from benchmarks.web_servers import Running, free_port
from serving.rpc.server import MESSAGE

CLIENTS, ROUNDS, SECONDS = 4, 3, 5.0
# Seconds between two questions for the health, between two attacks, and between two versions of a model.
PAUSE, REST, NEXT_VERSION = 0.002, 1.0, 0.5
START_COST = 10.0
NETS = ("mnist", "cifar10")
# Nanoseconds for which this thread has run and waited for a core, and the number of its turns.
_SCHEDULED = Path("/proc/thread-self/schedstat")

# Disturbs the endpoint until the event is set.
Disturbance = Callable[[threading.Event], None]


def run(session: Session) -> Iterator[Row]:
    """Measures all disturbances in turn; if quick, two attacks and the loading of versions, each for a moment."""
    version = alone(serving.exported(session), session.folder / "health")
    _, images, _ = data.mnist(256, quick=session.quick)
    versions = [version, *(copied(name, version.parents[1]) for name in NETS)]
    port = free_port()
    contestant = replace(serving.OURS, options=("--grpc-port", str(port)))
    rounds, seconds = _scope(session)
    found: dict[str, list[list[float]]] = {}
    with Running(contestant, version.parents[1], version) as running:
        running.wait(images[0].tobytes())
        place = urlsplit(running.url)
        address = place.hostname or "", place.port or 80
        disturbances = _disturbances(session, address, port, Repository(versions), images)
        for turn in range(rounds):
            for name, threads in disturbances.items():
                taken = _measured(address, threads, seconds)
                found.setdefault(name, []).append(taken)
                answers = f"{len(taken)} answers, longest {max(taken):.1f} ms"
                session.spent(seconds + REST, f"health: {name}, round {turn + 1}: {answers}")
    template = Row("health", unit="ms", contestant=serving.OURS.name, ours=True)
    for name, all_taken in found.items():
        for measure, values in (
            ("p50", [statistics.median(taken) for taken in all_taken]),
            ("p99", [float(np.percentile(taken, 99)) for taken in all_taken]),
            ("longest", [max(taken) for taken in all_taken]),
        ):
            yield session.row(replace(template, measure=f"{name}: {measure}"), values)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    rounds, seconds = _scope(session)
    count = 3 if session.quick else len(ATTACKS) + 4
    return serving.EXPORT_COST + START_COST + count * rounds * (seconds + REST)


BENCHMARK = Benchmark("health", "How long does the health answer take under hostile requests?", run, cost)


def _scope(session: Session) -> tuple[int, float]:
    """Returns rounds, and seconds per disturbance."""
    return (1, 0.5) if session.quick else (ROUNDS, SECONDS)


def _disturbances(
    session: Session, address: tuple[str, int], port: int, models: Repository, images: np.ndarray
) -> dict[str, list[Disturbance]]:
    """Returns the threads of each disturbance."""
    attacks = list(ATTACKS.items())[: 2 if session.quick else None]
    found: dict[str, list[Disturbance]] = {
        name: [partial(_send, address, attack(images))] * (CLIENTS if name != "nothing" else 0)
        for name, attack in attacks
    }
    found["versions that are loaded"] = [partial(_load, models)]
    if not session.quick:
        large = np.zeros((MESSAGE // images[0].size - 1, *images.shape[1:]), np.uint8)
        for name, message in (
            ("gRPC, 256 images", infer_message("dense", images)),
            ("gRPC, values of 256 images one by one", infer_message("dense", images, listed=True)),
            ("gRPC, 8 MiB", infer_message("dense", large)),
        ):
            found[name] = [partial(_call, port, message)] * CLIENTS
    return found


def _measured(address: tuple[str, int], disturbances: Sequence[Disturbance], seconds: float) -> list[float]:
    """Returns the milliseconds of each health answer during a disturbance."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    asking = context.Process(target=_ask, args=(address, there))
    asking.start()
    here.recv()
    ended = threading.Event()
    threads = [threading.Thread(target=one, args=(ended,)) for one in disturbances]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    here.send("stop")
    taken: list[float] = here.recv()
    ended.set()
    for thread in threads:
        thread.join()
    asking.join()
    time.sleep(REST)
    return taken


def _ask(address: tuple[str, int], pipe: Connection) -> None:
    connection, taken = http.client.HTTPConnection(*address, timeout=120), []
    # Opened once: reading it then takes two microseconds.
    scheduled = os.open(_SCHEDULED, os.O_RDONLY) if _SCHEDULED.exists() else None
    pipe.send("started")
    while not pipe.poll():
        start = time.perf_counter()
        before = _waited(scheduled)
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        waited = _waited(scheduled) - before
        taken.append(1000 * (time.perf_counter() - start) - waited)
        time.sleep(PAUSE)
    connection.close()
    pipe.send(taken)


def _waited(scheduled: int | None) -> float:
    """Returns the milliseconds for which this thread has waited for a core so far; 0 where they are not counted."""
    return int(os.pread(scheduled, 100, 0).split()[1]) / 1e6 if scheduled is not None else 0.0


def _send(address: tuple[str, int], content: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        # The endpoint refuses some requests before it has read them.
        with suppress(OSError), socket.create_connection(address, timeout=120) as connection:
            connection.sendall(content)
            while connection.recv(2**20):
                pass


def _call(port: int, message: bytes, ended: threading.Event) -> None:
    # Channels to one address otherwise share a connection.
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method = channel.unary_unary(INFER)
        while not ended.is_set():
            with suppress(grpc.RpcError):
                method(message, timeout=120)


def _load(models: Repository, ended: threading.Event) -> None:
    while not ended.wait(NEXT_VERSION):
        models.add_good()

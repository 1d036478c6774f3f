"""Resident memory of the endpoint and its child processes: the terms of the sum in docs/serving.md, and all of it.

It is read from `/proc`, so on Linux only. Unlike speed, it does not depend on the other load of the machine.
"""

import json
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import psutil

from benchmarks import data, serving
from benchmarks.batch_inference import encoded
from benchmarks.hostile_requests import ATTACKS, LARGE, one_bit, photograph, post
from benchmarks.known_answers import INFER, infer_message, inputs
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.unstable_endpoint import copied
from benchmarks.web_servers import PATIENCE, Running, free_port
from serving.engine.decoding import MEMORY
from serving.engine.settings import Settings
from serving.http.places import UNREAD
from serving.memory import KEPT
from serving.rpc import calls
from serving.rpc.server import MESSAGE, MOST, WINDOW

MB = 1_000_000
# Bytes of the terms in docs/serving.md, which are rounded up from what `run` measures.
PICTURE, SMALL_PICTURE, DECODER, READER = 46 * MB, 14 * MB, 43 * MB, 280 * MB
# Of the two processes that may be trying versions at the same time.
TRIALS = 2 * 150 * MB
# What a net keeps for its next batch, for each core.
NETS = {"dense": 10 * MB, "mnist": 22 * MB, "cifar10": 42 * MB, "cifar100": 42 * MB}
PACKAGED = ("mnist", "cifar10", "cifar100")
ROUNDS = 3
# Side of the largest image that `picture.onnx` sees without scaling, in pixels.
SIDE = 999
# Seconds under all kinds of requests at once, and the clients that send them, over HTTP and over gRPC.
SECONDS, CLIENTS = 30.0, 32
START_COST, QUICK_COST = 80.0, 20.0


def bound(start: int, nets: Iterable[str], settings: Settings, *, with_grpc: bool = False) -> int:
    """Returns the bound on memory that docs/serving.md states, in bytes, for the endpoint and all its child processes.

    Args:
        start: memory of the endpoint once it has loaded its models.
        nets: names of the nets, of `NETS`; with a net for each version that is replaced.
        settings: settings of the endpoint.
        with_grpc: whether it listens for gRPC too.

    Example:
        bound(136 * MB, ["dense"] * 4, Settings(Path("models"), threads=2, decoders=2))
    """
    computing = settings.threads * (sum(NETS[net] for net in nets) + SMALL_PICTURE + READER)
    decoding = settings.decoders * (PICTURE + DECODER + MEMORY)
    messages = (calls.ARRIVING + calls.CHECKS) * MESSAGE + MOST * WINDOW + calls.UNREAD if with_grpc else 0
    return start + KEPT + computing + decoding + settings.bodies + UNREAD + messages + TRIALS


def run(session: Session) -> Iterator[Row]:
    """Measures each term in several starts of the endpoint; if quick, in one."""
    models = _repository(session)
    name, images, _ = data.mnist(32 if session.quick else 256, quick=session.quick)
    found: dict[str, list[float]] = {}
    for turn in range(1 if session.quick else ROUNDS):
        for measure, size in _measured(models, images, session).items():
            found.setdefault(measure, []).append(size / MB)
        session.spent(QUICK_COST if session.quick else START_COST, f"memory: round {turn + 1}")
    template = Row("memory", unit="MB", contestant=serving.OURS.name, ours=True, data=f"{name}, packaged nets")
    for measure, sizes in found.items():
        yield session.row(replace(template, measure=measure), sizes)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return QUICK_COST if session.quick else serving.EXPORT_COST + ROUNDS * START_COST


BENCHMARK = Benchmark("memory", "How much memory do the endpoint and its child processes take?", run, cost)


def _repository(session: Session) -> Path:
    """Makes a repository of the dense net of the serving benchmark and the packaged nets."""
    models = session.folder / "memory"
    shutil.copytree(serving.exported(session), models / "dense" / "1")
    for name in PACKAGED:
        copied(name, models)
    return models


def _measured(models: Path, images: np.ndarray, session: Session) -> dict[str, int]:
    """Starts the endpoint and measures each term in turn, in bytes."""
    sizes: dict[str, int] = {}
    batches = {name: inputs(images, colours=name.startswith("cifar")) for name in NETS}
    port, threads = free_port(), Settings(models).threads
    contestant = replace(serving.OURS, options=("--grpc-port", str(port)))
    with Running(contestant, models, models / "dense" / "1") as running:
        endpoint, address = running.process, running.url.partition("/predict/")[0]

        def send(path: str, kind: str, body: bytes) -> None:
            request = urllib.request.Request(f"{address}{path}", body, {"Content-Type": kind}, method="POST")
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                answer.read()

        sizes["trying versions, at most"] = _peak_of_trials(running, images[0].tobytes())
        sizes["endpoint with four models"] = start = endpoint.memory_info().rss

        before = _reset_peak(endpoint)
        send("/predict/mnist", "image/png", encoded(images[0, ..., 0], SIDE, "PNG"))
        sizes["image of 999 x 999 pixels in the endpoint"] = _peak(endpoint) - before
        (decoder,) = endpoint.children()
        sizes["decoding process at rest"] = decoder.memory_info().rss
        before = _reset_peak(endpoint)
        for body in (photograph(2047, 2047, "JPEG"), photograph(4000, 3000, "JPEG"), photograph(4000, 3000)):
            send("/predict/cifar10", "image/*", body)
        sizes["photographs up to 12 megapixels in the endpoint"] = _peak(endpoint) - before
        send("/predict/cifar10", "image/png", one_bit(7000, 7100))
        sizes["decoding process, at most"] = _peak(decoder)

        for name, batch in batches.items():
            before = endpoint.memory_info().rss
            with ThreadPoolExecutor(2 * threads) as pool:
                for path in (f"/predict/{name}", f"/predict/{name}?seen=true&maps=true&explain=true"):
                    list(pool.map(partial(send, path, "application/octet-stream"), [batch.tobytes()] * 3 * threads))
            sizes[f"{name} after batches of 256, per core"] = max(endpoint.memory_info().rss - before, 0) // threads
        readers = set(endpoint.children()) - {decoder}
        for reader in readers:
            reader.kill()
        sizes |= _readers(endpoint, send, batches)
        sizes["refused gRPC messages of 8 MiB in the endpoint"] = _refusing(endpoint, port, 2 * threads)
        sizes["everything at once, at most"] = _saturated(running, port, batches, quick=session.quick)
        sizes["everything at once, bound"] = bound(start, NETS, Settings(models), with_grpc=True)
    for measure, most in (
        ("everything at once, at most", sizes["everything at once, bound"]),
        ("refused gRPC messages of 8 MiB in the endpoint", calls.ARRIVING * MESSAGE),
    ):
        if sizes[measure] > most:
            session.disagreements.append(f"memory: {measure}: {sizes[measure]:,} bytes exceed the bound of {most:,}")
    return sizes


def _readers(endpoint: psutil.Process, send: Callable[..., None], batches: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Measures the processes that parse large JSON and write large answers."""
    known = set(endpoint.children())
    send("/v1/models/dense:predict", "application/json", _json(instances=batches["dense"].tolist()))
    (reader,) = set(endpoint.children()) - known
    found = {"JSON process at rest": reader.memory_info().rss}
    colours = batches["cifar10"]
    floats = colours.astype(float)
    tensor = {"name": "image", "datatype": "FP32", "shape": colours.shape, "data": floats.ravel().tolist()}
    for path, body in (
        # As long as a body may be.
        ("/v1/models/cifar10:predict", _json(instances=floats.tolist()).replace(b".0", b"." + b"0" * 30)),
        ("/v2/models/cifar10/infer", _json(inputs=[tensor])),
        # As many values as a body may have, in forms that take much memory.
        ("/v1/models/cifar10:predict", b'{"instances":[' + b'{"":1.5},' * (colours.size * 2 // 3) + b"{}]}"),
        ("/v1/models/cifar10:predict", b'{"instances":[' + '"\U0001f600",'.encode() * (colours.size * 4 // 3) + b"1]}"),
        # A character outside of the basic plane makes a string four times as long.
        ("/v1/models/dense:predict", b'{"instances":["' + b"a" * LARGE + '\U0001f600"]}'.encode()),
        ("/v2/models/dense/infer", ATTACKS["JSON of 30 MB, base64"](colours).partition(b"\r\n\r\n")[2]),
    ):
        send(path, "application/json", body)
    send("/predict/cifar100?seen=true&maps=true&top=100&explain=true", "application/octet-stream", colours.tobytes())
    found["JSON process, at most"] = max(map(_peak, set(endpoint.children()) - known))
    return found


def _json(**content: object) -> bytes:
    return json.dumps(content).encode()


def _refusing(endpoint: psutil.Process, port: int, clients: int) -> int:
    """Returns what the endpoint takes while it refuses long messages: little, if each is freed at once."""
    before, ended = endpoint.memory_info().rss, threading.Event()
    threads = [threading.Thread(target=_call, args=(port, number, {}, ended)) for number in range(clients)]
    return largest_under(threads, ended, 2.0, lambda: int(endpoint.memory_info().rss), pause=0.02) - before


def _saturated(running: Running, port: int, batches: Mapping[str, np.ndarray], *, quick: bool) -> int:
    """Returns the largest memory at any time while clients send all kinds of requests at once."""
    clients, seconds = (2, 1.0) if quick else (CLIENTS, SECONDS)
    address, ended = ("127.0.0.1", running.port), threading.Event()
    requests = [attack(batches["dense"]) for name, attack in ATTACKS.items() if name != "nothing"]
    requests += [
        post(f"/predict/{name}{query}", kind, body)
        for name, batch in batches.items()
        for kind, body, query in (
            ("application/octet-stream", batch.tobytes(), ""),
            ("application/octet-stream", batch.tobytes(), "?seen=true&maps=true&explain=true"),
            ("image/png", photograph(SIDE, SIDE), ""),
            ("image/jpeg", photograph(2047, 2047, "JPEG"), "?seen=true"),
            ("image/jpeg", photograph(4000, 3000, "JPEG"), ""),
        )
    ]
    threads = [threading.Thread(target=_send, args=(address, requests, number, ended)) for number in range(clients)] + [
        threading.Thread(target=_call, args=(port, number, batches, ended)) for number in range(clients)
    ]
    return largest_under(threads, ended, seconds, running.memory, pause=0.02)


def largest_under(
    threads: Sequence[threading.Thread],
    ended: threading.Event,
    seconds: float,
    memory: Callable[[], int],
    *,
    pause: float,
) -> int:
    """Runs clients for a time, and returns the largest memory meanwhile.

    Args:
        threads: the clients, which end with the event.
        ended: set after the time.
        seconds: the time.
        memory: returns the memory at present.
        pause: seconds between two looks at it.
    """
    for thread in threads:
        thread.start()
    largest, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        largest = max(largest, memory())
        time.sleep(pause)
    ended.set()
    for thread in threads:
        thread.join()
    return largest


def _send(address: tuple[str, int], requests: list[bytes], number: int, ended: threading.Event) -> None:
    """Sends one request after another; every fourth answer stays unread for a while."""
    with ExitStack() as held:
        while not ended.is_set():
            number += 1
            with suppress(OSError):
                connection = held.enter_context(socket.create_connection(address, timeout=PATIENCE))
                connection.sendall(requests[number % len(requests)])
                while number % 4 and connection.recv(2**20):
                    pass
            if number % 16 == 0:
                held.close()


def _call(port: int, number: int, batches: Mapping[str, np.ndarray], ended: threading.Event) -> None:
    """Sends one gRPC message after another: batches, and messages as long as they may be."""
    names = [*batches]
    messages = [infer_message(name, batches[name]) for name in names] + [bytes(MESSAGE - 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method = channel.unary_unary(INFER)
        while not ended.is_set():
            number += 1
            with suppress(grpc.RpcError):
                method(messages[number % len(messages)], timeout=PATIENCE)


def _peak_of_trials(running: Running, pixels: bytes) -> int:
    """Returns the peak memory of any child process until all versions are loaded and no child is left."""
    largest, endpoint = 0, running.process

    def loaded() -> bool:
        nonlocal largest
        children = endpoint.children()
        for child in children:
            with suppress(OSError):
                largest = max(largest, _peak(child))
        return largest > 0 and not children

    _until(loaded)
    running.wait(pixels)
    return largest


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"the endpoint was not ready within {PATIENCE:.0f} s")
        time.sleep(0.02)


def _reset_peak(process: psutil.Process) -> int:
    """Starts the peak of a process anew, and returns its memory."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(process.memory_info().rss)


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0

"""Response time of the health check under load from four hostile clients.

A process of its own asks for `/v2/health/live` every few milliseconds. All processes share the cores of the machine, so
the times include its own waiting for a core.
"""

import base64
import http.client
import io
import json
import multiprocessing
import socket
import statistics
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from benchmarks import data, serving
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.web_servers import Running

CLIENTS, ROUNDS, SECONDS = 4, 3, 5.0
# Seconds between two questions for the health, and between two attacks.
PAUSE, REST = 0.002, 1.0
# Bytes of the largest bodies, a little below the limit.
LARGE = 30_000_000
START_COST = 10.0
_PREDICT, _INFER, _FILES = "/v1/models/dense:predict", "/v2/models/dense/infer", "/predict/dense"
_FORM = "multipart/form-data; boundary=b"
_JSON, _PNG, _RAW = "application/json", "image/png", "application/octet-stream"
_PART = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'


def run(session: Session) -> Iterator[Row]:
    """Measures all attacks in turn; if quick, the first two for a moment."""
    version = serving.exported(session)
    _, images, _ = data.mnist(256, quick=session.quick)
    chosen = {name: ATTACKS[name](images) for name in _names(session)}
    found: dict[str, list[list[float]]] = {name: [] for name in chosen}
    rounds, seconds = _scope(session)
    with Running(serving.OURS, version.parents[1], version) as running:
        running.wait(images[0].tobytes())
        place = urlsplit(running.url)
        address = place.hostname or "", place.port or 80
        for turn in range(rounds):
            for name, content in chosen.items():
                taken = _measured(address, content, seconds)
                found[name].append(taken)
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
    return serving.EXPORT_COST + START_COST + len(_names(session)) * rounds * (seconds + REST)


BENCHMARK = Benchmark("health", "How long does the health answer take under hostile requests?", run, cost)


def _names(session: Session) -> list[str]:
    return list(ATTACKS)[: 2 if session.quick else None]


def _scope(session: Session) -> tuple[int, float]:
    """Returns rounds, and seconds per attack."""
    return (1, 0.5) if session.quick else (ROUNDS, SECONDS)


def _measured(address: tuple[str, int], content: bytes, seconds: float) -> list[float]:
    """Returns the milliseconds of each health answer while clients send a request again and again."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    asking = context.Process(target=_ask, args=(address, there))
    asking.start()
    here.recv()
    ended = threading.Event()
    clients = [threading.Thread(target=_send, args=(address, content, ended)) for _ in range(CLIENTS if content else 0)]
    for client in clients:
        client.start()
    time.sleep(seconds)
    here.send("stop")
    taken: list[float] = here.recv()
    ended.set()
    for client in clients:
        client.join()
    asking.join()
    time.sleep(REST)
    return taken


def _ask(address: tuple[str, int], pipe: Connection) -> None:
    connection, taken = http.client.HTTPConnection(*address, timeout=120), []
    pipe.send("started")
    while not pipe.poll():
        start = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        taken.append(1000 * (time.perf_counter() - start))
        time.sleep(PAUSE)
    connection.close()
    pipe.send(taken)


def _send(address: tuple[str, int], content: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        # The endpoint refuses some requests before it has read them.
        with suppress(OSError), socket.create_connection(address, timeout=120) as connection:
            connection.sendall(content)
            while connection.recv(2**20):
                pass


def post(path: str, kind: str, body: bytes) -> bytes:
    """Returns the bytes of a request that closes its connection."""
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (_head(path, kind), len(body), body)


def _chunked(chunk: bytes, count: int) -> bytes:
    parts = b"%x\r\n%s\r\n" % (len(chunk), chunk) * count
    return b"%s\r\nTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (_head(_FILES, _PNG), parts)


def _head(path: str, kind: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: endpoint\r\nConnection: close\r\nContent-Type: {kind}".encode()


def _photograph() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 32, (3000, 4000, 3), np.uint8)
    pixels += np.linspace(0, 200, 4000, dtype=np.uint8)[:, None]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _one_bit(width: int, height: int) -> bytes:
    """Returns a black PNG file of some kilobytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(bytes((1 + -(-width // 8)) * height), 9)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _base64() -> bytes:
    file = base64.b64encode(bytes(LARGE * 3 // 4 - 100))
    return b'{"inputs":[{"name":"image_bytes","datatype":"BYTES","shape":[1],"data":["' + file + b'"]}]}'


def _form(content: bytes) -> bytes:
    return post(_FILES, _FORM, _PART + content + b"\r\n--b--\r\n")


# Requests to the model `dense` by name, made of 256 images; each closes its connection.
ATTACKS: dict[str, Callable[[np.ndarray], bytes]] = {
    "nothing": lambda _: b"",
    "JSON of 256 images": lambda images: post(_PREDICT, _JSON, json.dumps({"instances": images.tolist()}).encode()),
    "JSON of 30 MB, empty lists": lambda _: post(_PREDICT, _JSON, b'{"instances":[' + b"[]," * (LARGE // 3) + b"[]]}"),
    "JSON of 30 MB, a string": lambda _: post(_PREDICT, _JSON, b'{"instances":["' + b"a" * LARGE + b'"]}'),
    "JSON of 30 MB, base64": lambda _: post(_INFER, _JSON, _base64()),
    "chunks of 1 byte": lambda _: _chunked(b"x", 2_000_000),
    "chunks of 64 bytes": lambda _: _chunked(b"x" * 64, 400_000),
    "form, many small files": lambda _: _form((b"x\r\n" + _PART) * 20_000),
    "form, 30 MB of line ends": lambda _: _form(b"\r\n" * (LARGE // 2)),
    "form, 30 MB of near boundaries": lambda _: _form(b"\r\n--" * (LARGE // 4)),
    "form, 30 MB before its start": lambda _: post(_FILES, _FORM, b"\r\n" * (LARGE // 2) + _PART + b"x\r\n--b--\r\n"),
    "PNG of 12 megapixels": lambda _: post(_FILES, _PNG, _photograph()),
    "PNG of 7,000 x 7,100 pixels, 1 bit": lambda _: post(_FILES, _PNG, _one_bit(7000, 7100)),
    "answer of 256 images": lambda images: post(f"{_FILES}?seen=true&top=10", _RAW, images.tobytes()),
}

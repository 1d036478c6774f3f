"""`python -m benchmarks.hostile`: how long `/v2/health/live` takes while an endpoint is sent what is made to stop it.

    python -m benchmarks.hostile http://127.0.0.1:8501 digits

Each kind of request comes from two clients at once; `slow` is 400 connections with half a request. A process of its own
asks for the health, as the clients are busy themselves. The model is one of 28 x 28 grey pixels.
"""

import argparse
import base64
import http.client
import multiprocessing
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple
from urllib.parse import urlsplit

CLIENTS, SLOW = 2, 400
# Seconds before and after, so that there are requests to measure.
PAUSE = 0.3
# Seconds that slow clients stay, and that are measured without any.
HELD = 2.0
# Bytes of the largest bodies, a little below the limit.
LARGE = 30_000_000


class Sent(NamedTuple):
    """A request."""

    path: str
    body: bytes
    kind: str = "application/json"


def requests(model: str) -> dict[str, Sent]:
    """What is sent, by name.

    Args:
        model: its name.
    """
    row = b"[" + b",".join([b"[200]"] * 28) + b"]"
    picture = b"[" + b",".join([row] * 28) + b"]"
    predict, infer = f"/v1/models/{model}:predict", f"/v2/models/{model}/infer"
    file = base64.b64encode(bytes(LARGE * 3 // 4 - 100))
    return {
        "pixels": Sent(predict, b'{"instances":[' + b",".join([picture] * (LARGE // len(picture) - 1)) + b"]}"),
        "256 pictures": Sent(predict, b'{"instances":[' + b",".join([picture] * 256) + b"]}"),
        "empty lists": Sent(predict, b'{"instances":[' + b"[]," * (LARGE // 3 - 10) + b"[]]}"),
        "a file": Sent(predict, b'{"signature_name":"serving_bytes","instances":[{"b64":"' + file + b'"}]}'),
        "a file, v2": Sent(
            infer, b'{"inputs":[{"name":"image_bytes","datatype":"BYTES","shape":[1],"data":["' + file + b'"]}]}'
        ),
        "a large answer": Sent(f"/predict/{model}?seen=true", bytes(256 * 784), "application/octet-stream"),
    }


def main(words: list[str] | None = None) -> int:
    """Measures, and prints a line for each kind.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    asked = parser.parse_args(words)
    place = urlsplit(asked.url)
    address = place.hostname or "", place.port or 80
    found = {"nothing": _health(address, time.sleep, HELD)}
    for name, sent in requests(asked.model).items():
        found[name] = _health(address, _together, address, sent)
    found["slow"] = _health(address, _slow, address)
    for name, milliseconds in found.items():
        milliseconds.sort()
        p99 = milliseconds[int(0.99 * len(milliseconds))]
        sys.stdout.write(
            f"{name}: {len(milliseconds)} answers, p50 {statistics.median(milliseconds):.1f} ms, p99 {p99:.0f} ms, "
            f"longest {milliseconds[-1]:.0f} ms\n"
        )
    return 0


def _health(address: tuple[str, int], load: Callable[..., object], *arguments: object) -> list[float]:
    """Milliseconds of each answer meanwhile."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    asking = context.Process(target=_ask, args=(address, there))
    asking.start()
    here.recv()
    time.sleep(PAUSE)
    load(*arguments)
    time.sleep(PAUSE)
    here.send("stop")
    taken: list[float] = here.recv()
    asking.join()
    return taken


def _ask(address: tuple[str, int], pipe: Connection) -> None:
    connection, taken = http.client.HTTPConnection(*address, timeout=120), []
    pipe.send("started")
    while not pipe.poll():
        start = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        taken.append(1000 * (time.perf_counter() - start))
        time.sleep(0.005)
    connection.close()
    pipe.send(taken)


def _together(address: tuple[str, int], sent: Sent) -> None:
    threads = [threading.Thread(target=_send, args=(address, sent)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(address: tuple[str, int], sent: Sent) -> None:
    connection = http.client.HTTPConnection(*address, timeout=120)
    connection.request("POST", sent.path, sent.body, {"Content-Type": sent.kind})
    connection.getresponse().read()
    connection.close()


def _slow(address: tuple[str, int]) -> None:
    halves = (
        b"",
        b"GET /models HTTP/1.1\r\nHo",
        b"POST /predict/x HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nx",
    )
    opened = []
    for number in range(SLOW):
        opened.append(socket.create_connection(address, timeout=30))
        opened[-1].sendall(halves[number % len(halves)])
    time.sleep(HELD)
    for connection in opened:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())

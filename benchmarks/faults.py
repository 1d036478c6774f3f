"""The endpoint at saturation while faults arrive at random: wrong answers, lost requests, and memory.

A dense net and a convolutional net for colours are served. Each client sends images, photographs or a large batch as
soon as it has the answer to its last request, and compares the answer with the output of the exported net itself
(`benchmarks.known_answers`). Meanwhile versions come and go, some of them damaged, the repository disappears for a
moment, the endpoint is stopped and started again, and other clients send hostile requests, or send them slowly.

Whether a request without an answer had been accepted is read from the endpoint's own log, by its id.
"""

import http.client
import itertools
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import numpy as np

from benchmarks import data, memory, serving
from benchmarks.hostile_requests import ATTACKS, one_bit, post
from benchmarks.known_answers import INFER, Question, infer_message, questions
from benchmarks.memory import MB
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.unstable_endpoint import DAMAGE, Endpoint, Repository, alone, copied
from serving.engine.settings import Settings
from serving.rpc.server import MESSAGE

CLIENTS, CALLERS, HOSTILE = 16, 4, 2
SECONDS, QUICK_SECONDS = 600.0, 3.0
# Maximum seconds between two changes of the repository and between two hostile requests; seconds between two restarts.
PAUSE, REST, LIFE = 2.0, 0.2, 120.0
# Connections that each hostile client leaves open.
HELD = 50
START_COST = 15.0
# Statuses of requests that the endpoint began but did not accept: incomplete ones, and those to send again.
NOT_ACCEPTED = (499, 503)
LOST = "accepted requests lost"
# Requests that are not HTTP, or contradict themselves.
MALFORMED = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /predict/dense HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /predict/dense HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    b"POST /predict/dense HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
)
_ids = itertools.count()


@dataclass
class Tally:
    """Counts of events, shared by all threads."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    """Ids of the requests whose connection ended as the endpoint stopped."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, example: str = "") -> None:
        """Counts an event; those with an example are wrong."""
        with self._lock:
            self.counts[what] += 1
            if example and len(self.wrong) < 20:
                self.wrong.append(f"{what}: {example}")


def _ask(endpoint: Endpoint, questions: list[Question], bad: set[int], tally: Tally, ended: threading.Event) -> None:
    """Asks one question after another over HTTP, on a connection that it keeps."""
    draw, connection = random.Random(), http.client.HTTPConnection(*endpoint.address, timeout=120)
    while not ended.is_set():
        question, is_new = draw.choice(questions), connection.sock is None
        try:
            if is_new:
                connection.connect()
        except OSError:
            tally.add("connections refused while the endpoint was stopped")
            ended.wait(0.1)
            continue
        stops, request = endpoint.stops, f"ask-{next(_ids)}"
        headers = {"content-type": question.kind, "x-request-id": request}
        try:
            connection.request("POST", question.path, question.body, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            _note_unanswered(endpoint, stops, request, tally, error)
            continue
        if status == 200:
            _compare(question, content, bad, tally)
        elif status == 503:
            tally.add("answers 503, to try again")
            ended.wait(0.05)
        else:
            tally.add(f"answers {status}", content[:200].decode(errors="replace"))
    connection.close()


def _call(endpoint: Endpoint, questions: list[Question], bad: set[int], tally: Tally, ended: threading.Event) -> None:
    """Asks one question after another over gRPC."""
    draw = random.Random()
    with _channel(endpoint) as channel:
        while not ended.is_set():
            question, stops, request = draw.choice(questions), endpoint.stops, f"call-{next(_ids)}"
            try:
                # While the endpoint is stopped, the call waits.
                answer = channel.unary_unary(question.path)(
                    question.body, timeout=120, metadata=(("x-request-id", request),), wait_for_ready=True
                )
            except grpc.RpcError as error:
                if any(name == "grpc-retry-pushback-ms" for name, _ in error.trailing_metadata() or ()):
                    tally.add("answers 503, to try again")
                    ended.wait(0.05)
                elif error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    _note_unanswered(endpoint, stops, request, tally, error)
                else:
                    tally.add(f"gRPC answers {error.code().name}", str(error.details()))
            else:
                _compare(question, answer, bad, tally)


def _channel(endpoint: Endpoint) -> grpc.Channel:
    """Returns a connection of its own, which is soon opened again after a restart."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    return grpc.insecure_channel(endpoint.grpc_address, options)


def _compare(question: Question, content: bytes, bad: set[int], tally: Tally) -> None:
    problem = question.problem(content, bad)
    tally.add("wrong answers" if problem else f"right answers{'' if question.kind else ' over gRPC'}", problem)


def _note_unanswered(endpoint: Endpoint, stops: int, request: str, tally: Tally, error: Exception) -> None:
    if endpoint.stopping or endpoint.stops > stops:
        tally.unanswered.add(request)
    else:
        tally.add("requests without an answer", repr(error))


def _attacks(images: np.ndarray) -> list[tuple[bytes, str]]:
    """Returns hostile requests, each with how it ends: answered, closed at once, sent slowly, incomplete, or unread."""
    whole = [attack(images) for name, attack in ATTACKS.items() if name != "nothing"]
    pixels = images[:1].tobytes()
    nan = b'{"instances":[[[NaN]]]}'
    number = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [True, 28, 28, 1], "data": [0] * 784}]}
    whole += [
        post(path, kind, body)
        for path, kind, body in (
            ("/v1/models/dense:predict", "application/json", nan),
            ("/v1/models/cifar10:predict", "application/json", nan),
            ("/v2/models/dense/infer", "application/json", json.dumps(number).encode()),
            ("/predict/dense", "image/png", b"not an image"),
            ("/predict/cifar10", "image/png", one_bit(7000, 7100)),
            ("/predict/cifar10", "application/octet-stream", pixels),
            ("/predict/other", "application/octet-stream", pixels),
        )
    ]
    short = post("/predict/dense", "application/octet-stream", pixels)
    large = ATTACKS["answer of 256 images"](images)
    return [
        *((one, "answered") for one in (*whole, *MALFORMED)),
        *((one, "closed") for one in (short, large, whole[0])),
        *((one, "incomplete") for one in (short[:20], short[:-10], large[:-1])),
        (short, "slow"),
        (large, "unread"),
    ]


def _attack(endpoint: Endpoint, attacks: list[tuple[bytes, str]], tally: Tally, ended: threading.Event) -> None:
    """Sends one hostile request after another, and leaves some of the connections open."""
    draw, held = random.Random(), list[socket.socket]()
    while not ended.is_set():
        content, ending = draw.choice(attacks)
        stops, answer = endpoint.stops, b""
        with suppress(OSError):
            connection = socket.create_connection(endpoint.address, timeout=120)
            held.append(connection)
            with suppress(OSError):
                # Some are refused before they have been read.
                if ending == "slow":
                    for start in range(0, len(content), len(content) // 8):
                        connection.sendall(content[start : start + len(content) // 8])
                        ended.wait(0.2)
                else:
                    connection.sendall(content)
            if ending in ("answered", "slow"):
                while part := connection.recv(2**20):
                    answer = answer or part
            elif ending == "closed":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ending in ("answered", "closed", "slow"):
                held.pop().close()
        status = int(answer[9:12] or 0)
        bug = status >= 500 and status != 503
        tally.add("hostile requests", f"{status} for {content[:60]!r}" if bug and endpoint.stops == stops else "")
        while len(held) > HELD:
            held.pop(0).close()
        ended.wait(draw.uniform(0, REST))
    for connection in held:
        connection.close()


def _attack_by_grpc(endpoint: Endpoint, images: np.ndarray, tally: Tally, ended: threading.Event) -> None:
    """Sends one hostile message after another: malformed ones, large ones, some that never end or are given up."""
    draw = random.Random()
    valid = infer_message("dense", images)
    messages = [
        b"\xff" * 100,
        valid + b"\xff",
        bytes(MESSAGE - 1),
        bytes(MESSAGE + 1),
        infer_message("other", images[:1]),
    ]

    def endless() -> Iterator[bytes]:
        ended.wait(draw.uniform(0, 5))
        yield valid

    with _channel(endpoint) as channel:
        while not ended.is_set():
            stops = endpoint.stops
            if draw.random() < 0.3:
                # Later calls do not wait for this one.
                call = channel.stream_unary(INFER).future(endless(), timeout=draw.uniform(0, 5))
                code = grpc.StatusCode.OK
            else:
                call = channel.unary_unary(INFER).future(draw.choice(messages), timeout=120, wait_for_ready=True)
                code = call.code()
            bug = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and endpoint.stops == stops
            tally.add("hostile requests over gRPC", f"{code.name}: {call.details()}" if bug else "")
            ended.wait(draw.uniform(0, REST))


def _disturb(endpoint: Endpoint, repository: Repository, tally: Tally, ended: threading.Event, seconds: float) -> None:
    """Changes the repository at random, and restarts the endpoint."""
    draw, life = random.Random(), min(LIFE, seconds / 2)
    until = time.monotonic() + life
    while not ended.wait(draw.uniform(0, PAUSE)):
        if time.monotonic() > until:
            status = endpoint.restart()
            tally.add("restarts", f"exit status {status}" if status else "")
            until = time.monotonic() + life
        elif (drawn := draw.random()) < 0.5:
            repository.add_good()
            tally.add("new versions")
        elif drawn < 0.9:
            what = draw.choice([*DAMAGE])
            repository.add_bad(DAMAGE[what])
            tally.add(f"new versions, damaged: {what}")
        else:
            repository.vanish()
            tally.add("times the repository vanished")


def _judge(endpoint: Endpoint, tally: Tally) -> None:
    """Counts the requests that got no answer as the endpoint stopped, by their status in its log."""
    tally.counts[LOST] = 0
    logged = endpoint.logged(tally.unanswered)
    for request in tally.unanswered:
        status = logged.get(request)
        if status is None:
            tally.add("requests that came too late for a stop, without a line in the log")
        elif status in NOT_ACCEPTED:
            tally.add("requests refused or incomplete at a stop, by the log")
        else:
            tally.add(LOST, f"{request} has status {status} in the log")


@dataclass(frozen=True)
class Soak:
    """Outcome of some time under faults; memory in bytes, of the endpoint with its child processes."""

    tally: Tally
    start: int
    """Memory once it answers."""
    largest: int
    """Most memory at any time."""
    bound: int
    """Bound on it; each net may be there twice while a version is replaced."""


def soak(versions: Sequence[Path], images: np.ndarray, seconds: float) -> Soak:
    """Lets faults arrive at random; restarts the endpoint every two minutes, or halfway if that is sooner.

    Args:
        versions: version 1 of the models `dense` and `cifar10`, alone in their repository, which changes.
        images: 256 images, uint8 [256, 28, 28, 1].
        seconds: duration, without the start and the last stop.
    """
    asked, attacks = [one for version in versions for one in questions(version, images)], _attacks(images)
    over_http = [one for one in asked if one.kind]
    over_grpc = [one for one in asked if not one.kind]
    repository, tally, ended = Repository(versions), Tally(), threading.Event()
    endpoint = Endpoint(repository.root, repository.root.with_name("endpoint.log"))
    endpoint.start()
    start = endpoint.memory()
    threads = [
        *(
            threading.Thread(target=ask, args=(endpoint, given, repository.bad, tally, ended))
            for ask, given, count in ((_ask, over_http, CLIENTS), (_call, over_grpc, CALLERS))
            for _ in range(count)
        ),
        *(threading.Thread(target=_attack, args=(endpoint, attacks, tally, ended)) for _ in range(HOSTILE)),
        threading.Thread(target=_attack_by_grpc, args=(endpoint, images, tally, ended)),
        threading.Thread(target=_disturb, args=(endpoint, repository, tally, ended, seconds)),
    ]
    largest = max(start, memory.largest_under(threads, ended, seconds, endpoint.memory, pause=0.2))
    status = endpoint.stop()
    tally.add("ends", f"exit status {status}" if status else "")
    _judge(endpoint, tally)
    nets = [version.parent.name for version in versions] * 2
    found = Soak(tally, start, largest, memory.bound(start, nets, Settings(repository.root), with_grpc=True))
    if found.largest > found.bound:
        tally.add("memory above its bound", f"{found.largest / MB:.0f} of {found.bound / MB:.0f} MB")
    return found


def run(session: Session) -> Iterator[Row]:
    """Lets faults arrive for ten minutes; if quick, for a moment."""
    version = alone(serving.exported(session), session.folder / "faults")
    name, images, _ = data.mnist(256, quick=session.quick)
    seconds = QUICK_SECONDS if session.quick else SECONDS
    found = soak([version, copied("cifar10", version.parents[1])], images, seconds)
    counts = sorted(found.tally.counts.items())
    session.disagreements += found.tally.wrong
    session.spent(seconds, f"faults: {', '.join(f'{count:,} {what}' for what, count in counts)}")
    template = Row("faults", contestant=serving.OURS.name, ours=True, data=f"{name}, cifar10")
    for what, count in counts:
        yield session.row(replace(template, measure=what, unit="times"), [count])
    sizes = (("at the start", found.start), ("at most", found.largest), ("bound", found.bound))
    for what, size in sizes:
        yield session.row(replace(template, measure=f"memory, {what}", unit="MB"), [size / MB])


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return serving.EXPORT_COST + START_COST + (QUICK_SECONDS if session.quick else SECONDS)


BENCHMARK = Benchmark("faults", "Does the endpoint answer correctly while faults arrive at random?", run, cost)

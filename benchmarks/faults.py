"""The endpoint at saturation while faults arrive at random: wrong answers, lost requests, and memory.

Each client sends an image as soon as it has the answer to the last one, and compares the answer with the output of the
exported net itself. Meanwhile versions come and go, some of them damaged, the repository disappears for a moment, the
endpoint is stopped and started again, and other clients send hostile requests (`benchmarks.health`).

Whether a request without an answer had been accepted is read from the endpoint's own log, by its id.
"""

import http.client
import io
import itertools
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import data, serving
from benchmarks.health import ATTACKS, post
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.unstable_endpoint import DAMAGE, Endpoint, Repository
from serving.engine.settings import Settings
from serving.http.connections import UNREAD
from serving.model import open_version

CLIENTS, HOSTILE = 16, 2
SECONDS, QUICK_SECONDS = 600.0, 3.0
# Maximum seconds between two changes of the repository and between two hostile requests; seconds between two restarts.
PAUSE, REST, LIFE = 2.0, 0.2, 120.0
# Connections that each hostile client leaves open.
HELD = 50
IMAGES, TOLERANCE = 64, 1e-4
START_COST = 15.0
MB = 1_000_000
# Statuses of requests that the endpoint began but did not accept: incomplete ones, and those to send again.
NOT_ACCEPTED = (499, 503)
LOST = "accepted requests lost"
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


@dataclass(frozen=True)
class Question:
    """A request whose answer is known.

    Args:
        path: path of the request.
        kind: content type.
        body: its body.
        probabilities: reads the probabilities from the answer; those that are left out are 0.
        expected: the probabilities of the classes.
    """

    path: str
    kind: str
    body: bytes
    probabilities: Callable[[dict], list[float]]
    expected: np.ndarray

    def problem(self, content: bytes, bad: set[int]) -> str:
        """Returns the fault of an answer; empty if there is none."""
        answer = json.loads(content)
        version = int(answer.get("version") or answer.get("model_version") or 1)
        if version in bad:
            return f"version {version} is damaged"
        difference = float(np.abs(np.array(self.probabilities(answer)) - self.expected).max())
        return f"{self.path} differs by {difference:.2g}" if difference > TOLERANCE else ""


def _questions(version: Path, images: np.ndarray) -> list[Question]:
    """Returns each image in four forms."""
    model = open_version(version)
    found = []
    for image, expected in zip(images, model.predict(images)["probabilities"], strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image[..., 0]).save(buffer, "PNG")
        tensor = {"name": "image", "datatype": "UINT8", "shape": [1, *image.shape], "data": image.ravel().tolist()}
        bodies = (
            ("/predict/dense?top=10", "application/octet-stream", image.tobytes(), _by_label),
            ("/predict/dense?top=10", "image/png", buffer.getvalue(), _by_label),
            ("/v1/models/dense:predict", "application/json", _json(instances=[image.tolist()]), _by_row),
            ("/v2/models/dense/infer", "application/json", _json(inputs=[tensor]), _by_name),
        )
        found += [Question(path, kind, body, read, expected) for path, kind, body, read in bodies]
    return found


def _json(**content: object) -> bytes:
    return json.dumps(content).encode()


def _by_label(answer: dict) -> list[float]:
    given = {guess["label"]: guess["probability"] for guess in answer["predictions"][0]["top"]}
    return [given[label] for label in sorted(given)]


def _by_row(answer: dict) -> list[float]:
    return answer["predictions"][0]["probabilities"]


def _by_name(answer: dict) -> list[float]:
    return next(one["data"] for one in answer["outputs"] if one["name"] == "probabilities")


def _ask(endpoint: Endpoint, questions: list[Question], bad: set[int], tally: Tally, ended: threading.Event) -> None:
    """Asks one question after another, on a connection that it keeps."""
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
            if endpoint.stopping or endpoint.stops > stops:
                tally.unanswered.add(request)
            else:
                tally.add("requests without an answer", repr(error))
            continue
        if status == 200:
            problem = question.problem(content, bad)
            tally.add("wrong answers" if problem else "right answers", problem)
        elif status == 503:
            tally.add("answers 503, to try again")
            ended.wait(0.05)
        else:
            tally.add(f"answers {status}", content[:200].decode(errors="replace"))
    connection.close()


def _attacks(images: np.ndarray) -> list[tuple[bytes, str]]:
    """Returns hostile requests, each with how it ends: answered, closed at once, left incomplete, or never read."""
    whole = [attack(images) for name, attack in ATTACKS.items() if name != "nothing"]
    pixels = images[:1].tobytes()
    nan = b'{"instances":[[[NaN]]]}'
    number = _json(inputs=[{"name": "image", "datatype": "UINT8", "shape": [True, 28, 28, 1], "data": [0] * 784}])
    whole += [
        post(path, kind, body)
        for path, kind, body in (
            ("/v1/models/dense:predict", "application/json", nan),
            ("/v2/models/dense/infer", "application/json", number),
            ("/predict/dense", "image/png", b"not an image"),
            ("/predict/other", "application/octet-stream", pixels),
        )
    ]
    short = post("/predict/dense", "application/octet-stream", pixels)
    large = ATTACKS["answer of 256 images"](images)
    return [
        *((one, "answered") for one in whole),
        *((one, "closed") for one in (short, large, whole[0])),
        *((one, "incomplete") for one in (short[:20], short[:-10], large[:-1])),
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
                connection.sendall(content)
            if ending == "answered":
                while part := connection.recv(2**20):
                    answer = answer or part
            elif ending == "closed":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ending in ("answered", "closed"):
                held.pop().close()
        status = int(answer[9:12] or 0)
        bug = status >= 500 and status != 503
        tally.add("hostile requests", f"{status} for {content[:60]!r}" if bug and endpoint.stops == stops else "")
        while len(held) > HELD:
            held.pop(0).close()
        ended.wait(draw.uniform(0, REST))
    for connection in held:
        connection.close()


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
            repository.add_bad(draw.choice(DAMAGE))
            tally.add("new versions that are damaged")
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


def _bound(start: int) -> int:
    """Returns the bound on memory that docs/serving.md states, in bytes."""
    decoder, reader, trial = (46 + 40 + 403) * MB, (53 + 2 * 34) * MB, 106 * MB
    settings = Settings(Path())
    per_core = settings.decoders * decoder + settings.threads * reader
    return start + 2**26 + per_core + settings.bodies + UNREAD + trial


@dataclass(frozen=True)
class Soak:
    """Outcome of some time under faults; memory in bytes, of the endpoint with its child processes."""

    tally: Tally
    start: int
    """Memory once it answers."""
    largest: int
    """Most memory at any time."""


def soak(version: Path, images: np.ndarray, seconds: float) -> Soak:
    """Lets faults arrive at random; restarts the endpoint every two minutes, or halfway if that is sooner.

    Args:
        version: version 1 of the model `dense`, alone in its repository, which changes.
        images: 256 images, uint8 [256, 28, 28, 1].
        seconds: duration, without the start and the last stop.
    """
    questions, attacks = _questions(version, images[:IMAGES]), _attacks(images)
    repository, tally, ended = Repository(version), Tally(), threading.Event()
    endpoint = Endpoint(repository.root, repository.root.with_name("endpoint.log"))
    endpoint.start()
    start = largest = endpoint.memory()
    threads = [
        *(
            threading.Thread(target=_ask, args=(endpoint, questions, repository.bad, tally, ended))
            for _ in range(CLIENTS)
        ),
        *(threading.Thread(target=_attack, args=(endpoint, attacks, tally, ended)) for _ in range(HOSTILE)),
        threading.Thread(target=_disturb, args=(endpoint, repository, tally, ended, seconds)),
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        largest = max(largest, endpoint.memory())
        time.sleep(0.2)
    ended.set()
    for thread in threads:
        thread.join()
    status = endpoint.stop()
    tally.add("ends", f"exit status {status}" if status else "")
    _judge(endpoint, tally)
    return Soak(tally, start, largest)


def run(session: Session) -> Iterator[Row]:
    """Lets faults arrive for ten minutes; if quick, for a moment."""
    version = serving.exported(session)
    name, images, _ = data.mnist(256, quick=session.quick)
    seconds = QUICK_SECONDS if session.quick else SECONDS
    found = soak(version, images, seconds)
    counts = sorted(found.tally.counts.items())
    session.disagreements += found.tally.wrong
    session.spent(seconds, f"faults: {', '.join(f'{count:,} {what}' for what, count in counts)}")
    template = Row("faults", contestant=serving.OURS.name, ours=True, data=name)
    for what, count in counts:
        yield session.row(replace(template, measure=what, unit="times"), [count])
    sizes = (("at the start", found.start), ("at most", found.largest), ("bound", _bound(found.start)))
    for what, size in sizes:
        yield session.row(replace(template, measure=f"memory, {what}", unit="MB"), [size / MB])


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return serving.EXPORT_COST + START_COST + (QUICK_SECONDS if session.quick else SECONDS)


BENCHMARK = Benchmark("faults", "Does the endpoint answer correctly while faults arrive at random?", run, cost)

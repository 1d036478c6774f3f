"""A stand-in for the endpoint under the page, which is busy, loads its models or loses its key when a test says so."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from PIL import Image

from serving.http.page import PAGE
from serving.schemas import Answer, Prediction, ServedModel

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
DIGITS = tuple("0123456789")


def facts(version: int, **changes: Any) -> dict[str, Any]:
    """Returns the facts about a version."""
    given = {
        "version": version, "created": "2030-01-01T00:00:00+00:00", "net": "tiny", "parameters": 48, "size": 1000,
        "data": "mnist", "test_accuracy": 0.9, "test_images": 10, "gates": False, "maps": False, "samples": [None],
    }  # fmt: skip
    return {**given, **changes}


def model(name: str = "digits", versions: tuple[int, ...] = (2, 1), **changes: Any) -> dict[str, Any]:
    """Returns a model of `/models`: digits of 28 x 28 pixels unless changed."""
    given = {
        "name": name, "versions": versions, "labels": {}, "failed": {}, "gates": False, "classes": DIGITS,
        "input": {"shape": [28, 28, 1], "pictures": "digit"}, "facts": [facts(version) for version in versions],
    }  # fmt: skip
    return ServedModel.model_validate({**given, **changes}).model_dump(mode="json")


@dataclass
class Request:
    """A request of the page for anything but its files."""

    path: str
    query: dict[str, str]
    body: bytes
    seconds: float = field(default_factory=time.monotonic)


@dataclass
class StandIn:
    """Answers of the stand-in, and what it was asked."""

    url: str = ""
    models: list[dict[str, Any]] = field(default_factory=lambda: [model()])
    loading: bool = False
    key: str | None = None
    refuse: Callable[[Request], tuple[int, str] | None] = lambda _: None
    """Returns the status and the message of a request that is refused; 503 asks for a pause of `pause` seconds."""
    pause: int = 1
    delay: float = 0.0
    """Seconds before each answer to a request with `delayed` in its path."""
    delayed: str = "/predict/"
    requests: list[Request] = field(default_factory=list)

    def asked(self, part: str) -> list[Request]:
        """Returns the requests for paths with this part."""
        return [one for one in list(self.requests) if part in one.path]

    def answer(self, request: Request) -> tuple[int, Any]:
        """Returns status and content of the answer to a request."""
        if request.path == "/models":
            return 200, self.models
        if request.path == "/v1/models":
            return 200, {"models": [], "statuses": {}, "wrong": {}, "loading": self.loading}
        if "/samples/" in request.path:
            file = io.BytesIO()
            Image.new("L", (28, 28), 128).save(file, "PNG")
            return 200, file.getvalue()
        name = request.path.rpartition("/")[2]
        (found,) = [one for one in self.models if one["name"] == name]
        version = int(request.query.get("version", found["versions"][0]))
        own = {**found, **next(one for one in found["facts"] if one["version"] == version)}
        top = [{"label": label, "probability": 1 / 16} for label in own["classes"][: int(request.query["top"])]]
        answer = Answer(
            model=name,
            version=version,
            predictions=(Prediction.model_validate({"top": top} if top else {"value": 1.5}),),
            target=own["input"]["target"],
        )
        return 200, answer.model_dump(mode="json", exclude_none=True)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Starts a stand-in on a free port of this machine."""
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Writes nothing."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            file = PAGE / ("index.html" if parts.path == "/" else Path(parts.path).name)
            if parts.path == "/" or parts.path.startswith("/static/"):
                self.send(200, file.read_bytes(), KINDS[file.suffix])
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = Request(parts.path, dict(parse_qsl(parts.query)), body)
            state.requests.append(request)
            if state.delayed in request.path:
                time.sleep(state.delay)
            # As the endpoint compares it: bytes in UTF-8.
            given = self.headers.get("x-api-key", "").encode("latin-1")
            refusal = state.refuse(request)
            if state.key is not None and given != state.key.encode():
                self.send(401, {"error": "the key is missing or wrong."})
            elif refusal:
                self.send(refusal[0], {"error": refusal[1]})
            else:
                self.send(*state.answer(request))

        do_POST = do_GET  # noqa: N815 - named by the base class

        def send(self, status: int, content: Any, kind: str = "") -> None:
            kind = kind or ("image/png" if isinstance(content, bytes) else "application/json")
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 503:
                self.send_header("Retry-After", str(state.pause))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

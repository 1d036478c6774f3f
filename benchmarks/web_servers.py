"""Web servers that take part: how each is started, asked and put aside."""

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil

from benchmarks.controller import ROOT, FailedError

SERVERS = ROOT / ".venv-servers"
PATIENCE = 90.0
# How a server takes a picture: pixels as they are, or as base64 in an object, or in a list in an object.
Body = Literal["raw", "base64", "list"]


@dataclass(frozen=True)
class WebServer:
    """A server that takes part.

    Args:
        name: in tables and figures.
        module: below `benchmarks.servers`; none is `highway serve`.
        environment: "project" is the environment of this process, "servers" that of `make servers`.
        options: of the program.
        body: how it takes a picture.
        ours: whether it is what this project offers.
    """

    name: str
    module: str = ""
    environment: Literal["project", "servers"] = "project"
    options: tuple[str, ...] = ()
    body: Body = "raw"
    ours: bool = False

    def encoded(self, pixels: bytes) -> bytes:
        """The body of a request."""
        if self.body == "raw":
            return pixels
        text = base64.b64encode(pixels).decode()
        return json.dumps({"b64": text if self.body == "base64" else [text]}).encode()

    @property
    def kind(self) -> str:
        """The content type of a request."""
        return "application/octet-stream" if self.body == "raw" else "application/json"


class Running:
    """A server's processes, stopped whenever another one is measured.

    Args:
        server: which.
        models: the model repository that ours serves.
        folder: the version that the others open.

    Raises:
        FailedError: its environment is missing, or it does not answer.
    """

    def __init__(self, server: WebServer, models: Path, folder: Path) -> None:
        self.server = server
        self.port = _free_port()
        words = (
            ["-m", f"benchmarks.servers.{server.module}", str(folder), str(self.port), *server.options]
            if server.module
            else ["-m", "pipelines", "serve", str(models), "--port", str(self.port), "--quiet"]
        )
        path = f"/predict/{folder.parent.name}" if server.ours else "/predict"
        self.url = f"http://127.0.0.1:{self.port}{path}"
        variables = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._process = subprocess.Popen(
            [_python(server.environment), *words],
            cwd=ROOT, env=variables, stdout=self._errors, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._errors.close()

    def halt(self) -> None:
        """Takes the cores from it."""
        for process in self._family():
            process.suspend()

    def go(self) -> None:
        """Gives them back."""
        for process in self._family():
            process.resume()

    def _family(self) -> list[psutil.Process]:
        # Not its process group: the workers of some servers have sessions of their own.
        try:
            main = psutil.Process(self._process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def wait(self, pixels: bytes) -> dict[str, float]:
        """Waits until it answers.

        Returns:
            The probabilities of the most probable classes, by label.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            try:
                return self.ask(pixels)
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        raise FailedError(f"it does not answer: {words[-1][:300] if words else 'no message'}")

    def ask(self, pixels: bytes) -> dict[str, float]:
        """Asks once."""
        request = urllib.request.Request(
            self.url, self.server.encoded(pixels), {"Content-Type": self.server.kind}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: Any = json.load(answer)
        found = found[0] if isinstance(found, list) else found
        top = found["predictions"][0]["top"] if "predictions" in found else found["top"]
        return {guess["label"]: guess["probability"] for guess in top}


def _python(environment: Literal["project", "servers"]) -> str:
    if environment == "project":
        return sys.executable
    path = SERVERS / "bin" / "python"
    if not path.exists():
        raise FailedError(f"{SERVERS.name} is missing: run `make servers`")
    return str(path)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])

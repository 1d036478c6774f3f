"""Web servers that take part: how each is started, queried, put under load by `wrk`, and suspended."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil

from benchmarks.controller import ROOT, FailedError

SERVERS = ROOT / ".venv-servers"
PATIENCE = 90.0
# How a server takes an image: raw pixels, base64 in an object, or base64 in a list in an object.
Body = Literal["raw", "base64", "list"]
_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "%s"
local bodies, at, ready = {%s}, 0, {}
init = function() for i, body in ipairs(bodies) do ready[i] = wrk.format(nil, nil, nil, body) end end
request = function() at = at %% #ready + 1; return ready[at] end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n{"requests": %%d, "seconds": %%f, "failed": %%d, "p50": %%f, "p95": %%f, "p99": %%f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True)
class WebServer:
    """A server that takes part.

    Args:
        name: name in tables and figures.
        module: name of the module in `benchmarks.servers`; empty for `highway serve`.
        environment: "project" is the environment of this process, "servers" that of `make servers`.
        options: options of the program.
        body: form in which it takes an image.
        ours: whether it belongs to this project.
    """

    name: str
    module: str = ""
    environment: Literal["project", "servers"] = "project"
    options: tuple[str, ...] = ()
    body: Body = "raw"
    ours: bool = False

    def encoded(self, pixels: bytes) -> bytes:
        """Encodes the body of a request."""
        if self.body == "raw":
            return pixels
        text = base64.b64encode(pixels).decode()
        return json.dumps({"b64": text if self.body == "base64" else [text]}).encode()

    @property
    def kind(self) -> str:
        """The content type of a request."""
        return "application/octet-stream" if self.body == "raw" else "application/json"


class Running:
    """The processes of a server, suspended while another one is measured.

    Args:
        server: server to start.
        models: the model repository that `highway serve` serves.
        folder: the version that the other servers open.
        cores: the cores that it may use; by default all.

    Raises:
        FailedError: its environment is missing, or it does not answer.
    """

    def __init__(self, server: WebServer, models: Path, folder: Path, cores: Sequence[int] = ()) -> None:
        self.server = server
        self.port = free_port()
        words = (
            ["-m", f"benchmarks.servers.{server.module}", str(folder), str(self.port), *server.options]
            if server.module
            else ["-m", "pipelines", "serve", str(models), "--port", str(self.port), "--quiet", *server.options]
        )
        path = "/predict" if server.module else f"/predict/{folder.parent.name}"
        self.url = f"http://127.0.0.1:{self.port}{path}"
        variables = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._process = subprocess.Popen(
            [_python(server.environment), *words],
            cwd=ROOT, env=variables, stdout=self._errors, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        if cores and hasattr(os, "sched_setaffinity"):
            # In effect before the process counts its cores; its workers inherit it.
            os.sched_setaffinity(self._process.pid, cores)

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._each(psutil.Process.kill)
        self._process.wait()
        self._errors.close()

    @property
    def process(self) -> psutil.Process:
        """The main process of the server."""
        return psutil.Process(self._process.pid)

    def memory(self) -> int:
        """Returns the resident bytes of its processes."""
        return resident(self._process.pid)

    def halt(self) -> None:
        """Suspends its processes."""
        self._each(psutil.Process.suspend)

    def go(self) -> None:
        """Resumes its processes."""
        self._each(psutil.Process.resume)

    def _each(self, act: Callable[[psutil.Process], None]) -> None:
        # Not its process group: workers of some servers have their own sessions. Children may end at any time.
        with suppress(psutil.NoSuchProcess):
            for process in (self.process, *self.process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    act(process)

    def wait(self, pixels: bytes) -> dict[str, float]:
        """Waits until the server answers.

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
        """Sends one request."""
        request = urllib.request.Request(
            self.url, self.server.encoded(pixels), {"Content-Type": self.server.kind}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: Any = json.load(answer)
        found = found[0] if isinstance(found, list) else found
        top = found["predictions"][0]["top"] if "predictions" in found else found["top"]
        return {guess["label"]: guess["probability"] for guess in top}


def resident(pid: int) -> int:
    """Returns the resident bytes of a process and its child processes, as far as they still run."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
    return total


@dataclass(frozen=True)
class Load:
    """Throughput, and latencies in milliseconds, under a few seconds of load."""

    per_second: float
    failed: int
    p50: float
    p95: float
    p99: float


def wrk_is_installed() -> bool:
    """Returns whether `wrk` is installed."""
    return shutil.which("wrk") is not None


def write_script(path: Path, kind: str, bodies: Sequence[bytes]) -> None:
    """Writes the Lua script of a load.

    Args:
        path: path of the file.
        kind: content type.
        bodies: bodies of the requests, which are sent in turn.
    """
    texts = ('"' + "".join(f"\\{byte:03d}" for byte in body) + '"' for body in bodies)
    path.write_text(_SCRIPT % (kind, ", ".join(texts)))


def load(url: str, script: Path, connections: int, seconds: float) -> Load:
    """Sends requests as fast as they are answered.

    Args:
        url: URL of the server.
        script: the result of `write_script`.
        connections: number of connections, each with one request in flight at any time.
        seconds: duration, in whole seconds.

    Raises:
        FailedError: `wrk` failed, or the server answered nothing.
    """
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "30s", "-s", str(script), url]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"wrk: {(done.stderr or done.stdout).strip()[:300]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if not found["requests"]:
        raise FailedError(f"no answer in {seconds:.0f} s at {connections} connections")
    return Load(found["requests"] / found["seconds"], found["failed"], found["p50"], found["p95"], found["p99"])


def _python(environment: Literal["project", "servers"]) -> str:
    if environment == "project":
        return sys.executable
    path = SERVERS / "bin" / "python"
    if not path.exists():
        raise FailedError(f"{SERVERS.name} is missing: run `make servers`")
    return str(path)


def free_port() -> int:
    """Returns a port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])

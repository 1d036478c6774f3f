"""The endpoint, and what computes behind it if that is another process; their memory is looked at all the time."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx

SECONDS = 0.5
"""Between two looks."""


@dataclass(frozen=True)
class Look:
    """At a process."""

    second: float
    name: str
    pid: int
    megabytes: float
    """Resident memory."""


class Server:
    """A program that can be killed and brought back.

    Args:
        name: what to call it.
        command: its words.
        ready: a URL that answers 200 when it can be asked; None does not wait.
        log: file for what it writes.
    """

    def __init__(self, name: str, command: list[str], ready: str | None, log: Path) -> None:
        self.name = name
        self._command = command
        self._ready = ready
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until = time.monotonic() + 120
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not start; see {self._log}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ends it; gives its exit status."""
        assert self.process is not None
        self.process.send_signal(how)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _is_ready(self) -> bool:
        if self._ready is None:
            return True
        try:
            return httpx.get(self._ready, timeout=2).status_code == 200
        except httpx.TransportError:
            return False


class Watch:
    """Looks at the memory of servers in a thread."""

    def __init__(self, servers: list[Server]) -> None:
        self.looks: list[Look] = []
        self._servers = servers
        self._end = threading.Event()
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def second(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def stop(self) -> None:
        """The end."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(SECONDS):
            for server in self._servers:
                process = server.process
                if process is not None and (size := _resident(process.pid)):
                    self.looks.append(Look(self.second(), server.name, process.pid, size))


def endpoint(models: Path, port: int, words: str, log: Path) -> Server:
    """`highway serve` over a repository."""
    command = [sys.executable, "-m", "pipelines", "serve", str(models), "--port", str(port), "--quiet"]
    return Server("endpoint", [*command, *shlex.split(words)], f"http://127.0.0.1:{port}/v2/health/ready", log)


def backend(command: str, models: Path, log: Path) -> Server:
    """What `--backend` says, with the repository in place of `{models}`."""
    return Server("backend", shlex.split(command.replace("{models}", str(models))), None, log)


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _resident(pid: int) -> float | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

"""An endpoint that is restarted, and a changing model repository, some versions of which are damaged."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.controller import ROOT, FailedError
from benchmarks.web_servers import PATIENCE


class Endpoint:
    """`highway serve` on a fixed port, stopped and started again during the run.

    Args:
        models: the repository.
        log: file for its log, in which every request that it began has a line.
    """

    def __init__(self, models: Path, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.address: tuple[str, int] = taken.getsockname()
        self._models, self._log = models, log
        self._process: subprocess.Popen[bytes] | None = None
        self.stopping, self.stops = True, 0

    def start(self) -> None:
        """Starts it and waits until it answers."""
        words = ["-m", "pipelines", "serve", str(self._models), "--port", str(self.address[1])]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=variables, stderr=log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/v2/health/ready", b"", "")[0] == 200:
                    self.stopping = False
                    return
            time.sleep(0.1)
        raise FailedError("the endpoint does not get ready")

    def stop(self) -> int:
        """Stops it as an operator does, and returns its exit status."""
        assert self._process
        self.stopping, self.stops = True, self.stops + 1
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def restart(self) -> int:
        """Stops it, starts it again, and returns the exit status."""
        status = self.stop()
        self.start()
        return status

    def ask(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        """Sends a request on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        try:
            connection.request(method, path, body, {"content-type": kind} if kind else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def logged(self, requests: set[str]) -> dict[str, int]:
        """Returns the status of each of these requests, by id, that the endpoint has begun."""
        found = {}
        with self._log.open("rb") as log:
            for line in log:
                if b'"message":"request"' in line:
                    entry = json.loads(line)
                    if entry["request_id"] in requests:
                        found[entry["request_id"]] = entry["status"]
        return found

    def memory(self) -> int:
        """Returns the resident bytes of it and its child processes."""
        assert self._process
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            sizes = []
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    sizes.append(one.memory_info().rss)
            return sum(sizes)
        return 0


class Repository:
    """A model repository that changes.

    Args:
        version: its version 1, which stays.
    """

    def __init__(self, version: Path) -> None:
        self.root, self._first = version.parents[1], version
        self._number, self._added = 1, list[Path]()
        self.bad: set[int] = set()

    def add_good(self) -> None:
        """Adds a copy of version 1, and removes the versions before it."""
        made = self._copy()
        made.rename(self._place())
        self._keep(2)

    def add_bad(self, damage: Callable[[Path], object]) -> None:
        """Adds a damaged version."""
        made = self._copy()
        damage(made)
        self.bad.add(self._number)
        made.rename(self._place())
        self._keep(4)

    def vanish(self) -> None:
        """Renames the repository for two seconds."""
        away = self.root.with_name("away")
        self.root.rename(away)
        time.sleep(2)
        away.rename(self.root)

    def _copy(self) -> Path:
        self._number += 1
        made = self.root.parent / f"made-{self._number}"
        shutil.copytree(self._first, made)
        manifest = made / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": self._number}))
        return made

    def _place(self) -> Path:
        self._added.append(self._first.with_name(str(self._number)))
        return self._added[-1]

    def _keep(self, count: int) -> None:
        while len(self._added) > count:
            shutil.rmtree(self._added.pop(0))


def _shape(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    content["input"]["shape"] = [None, 9, 9, 1]
    (folder / "manifest.json").write_text(json.dumps(content))


def _pipe(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    os.mkfifo(folder / "model.onnx")


DAMAGE: tuple[Callable[[Path], object], ...] = (
    lambda folder: (folder / "model.onnx").write_bytes(b"damaged"),
    lambda folder: (folder / "labels.txt").unlink(),
    lambda folder: (folder / "manifest.json").write_text("{"),
    _shape,
    _pipe,
)

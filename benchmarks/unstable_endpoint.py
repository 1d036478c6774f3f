"""An endpoint that is restarted, and a changing model repository, some versions of which are damaged."""

import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.controller import ROOT, FailedError
from benchmarks.web_servers import PATIENCE, free_port, resident
from serving import repository
from serving.files import digest


class Endpoint:
    """`highway serve` on fixed ports, for HTTP and gRPC, stopped and started again during the run.

    Args:
        models: the repository.
        log: file for its log, in which every request that it began has a line.
    """

    def __init__(self, models: Path, log: Path) -> None:
        self.address, self.grpc_address = ("127.0.0.1", free_port()), f"127.0.0.1:{free_port()}"
        self._models, self._log = models, log
        self._process: subprocess.Popen[bytes] | None = None
        self.stopping, self.stops = True, 0

    def start(self) -> None:
        """Starts it and waits until it answers."""
        ports = ["--port", str(self.address[1]), "--grpc-port", self.grpc_address.rpartition(":")[2]]
        words = ["-m", "pipelines", "serve", str(self._models), *ports]
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
        return resident(self._process.pid)


class Repository:
    """A model repository that changes.

    Args:
        versions: version 1 of each of its models, which stays.
    """

    def __init__(self, versions: Sequence[Path]) -> None:
        self.root = versions[0].parents[1]
        self._added: dict[Path, list[Path]] = {version: [] for version in versions}
        self._draw, self._number = random.Random(), 1
        # No two models have a version of the same number.
        self.bad: set[int] = set()

    def add_good(self) -> None:
        """Adds a copy of version 1 of a model, and removes the versions before it."""
        self._add(2)

    def add_bad(self, damage: Callable[[Path], object]) -> None:
        """Adds a damaged version of a model."""
        self._add(4, damage)

    def vanish(self) -> None:
        """Renames the repository for two seconds."""
        away = self.root.with_name("away")
        self.root.rename(away)
        time.sleep(2)
        away.rename(self.root)

    def _add(self, kept: int, damage: Callable[[Path], object] | None = None) -> None:
        first = self._draw.choice([*self._added])
        self._number += 1
        made = self.root.parent / f"made-{self._number}"
        shutil.copytree(first, made)
        edit(made, lambda content: content.update(version=self._number))
        if damage:
            damage(made)
            self.bad.add(self._number)
        added = self._added[first]
        added.append(made.rename(first.with_name(str(self._number))))
        while len(added) > kept:
            shutil.rmtree(added.pop(0))


def alone(version: Path, folder: Path) -> Path:
    """Copies a version into a new repository in a folder, which may change without other benchmarks, and returns it."""
    return shutil.copytree(version, folder / "models" / version.parent.name / version.name)


def copied(name: str, models: Path) -> Path:
    """Copies a net of the package into a repository unless it is there, and returns its version."""
    version = models / name / "1"
    if not version.exists():
        shutil.copytree(repository.find(Path(name)), version)
    return version


def edit(version: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest of a version."""
    content = json.loads((version / "manifest.json").read_text())
    change(content)
    (version / "manifest.json").write_text(json.dumps(content))


def _relabel(version: Path) -> None:
    """Removes a class from the labels, and makes the manifest agree with the file, so that only the graph differs."""
    labels = (version / "labels.txt").read_text().splitlines()[:-1]
    (version / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    found = digest(version / "labels.txt").model_dump(mode="json")
    edit(version, lambda content: (content.update(labels=labels), content["files"].update({"labels.txt": found})))


def _replace_by_pipe(name: str) -> Callable[[Path], object]:
    def damage(version: Path) -> None:
        (version / name).unlink()
        os.mkfifo(version / name)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "damaged graph": lambda version: (version / "model.onnx").write_bytes(b"damaged"),
    "no labels": lambda version: (version / "labels.txt").unlink(),
    "damaged manifest": lambda version: (version / "manifest.json").write_text("{"),
    "another input shape": lambda version: edit(
        version, lambda content: content["input"].update(shape=[None, 9, 9, content["input"]["shape"][-1]])
    ),
    "fewer labels than classes": _relabel,
    "an output that the graph lacks": lambda version: edit(
        version, lambda content: content["outputs"].update(confidence={"dtype": "float32", "shape": [None, 1]})
    ),
    "a pipe for a graph": _replace_by_pipe("model.onnx"),
    "a pipe for a manifest": _replace_by_pipe("manifest.json"),
}

"""Starts contestants in worker processes, asks them in turn, and measures their time."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers"
# Seconds to wait for an answer.
PATIENCE = 900.0


@dataclass(frozen=True)
class Contestant:
    """A program that takes part.

    Args:
        name: name in tables and figures.
        module: name of the module in `benchmarks.contestants`.
        environment: "project" is the environment of this process, "peers" that of `make peers`.
        options: options of the program.
        variables: environment variables.
        ours: whether it belongs to this project.
        deepest: largest number of highway blocks; None is unlimited.
        because: reason for that limit.
        prefix: command that runs the program, such as one that enters a network.
        cached: whether JAX caches compiled programs on disk, as PyTorch does by default. Steps are no faster for it, so
            only starts and studies are measured, with a filled cache.
    """

    name: str
    module: str
    environment: Literal["project", "peers"] = "peers"
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False
    deepest: int | None = None
    because: str = ""
    prefix: tuple[str, ...] = ()
    cached: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer of a worker.

    Args:
        seconds: time from the request to the answer; for the first answer, from the start of the process.
        losses: mean of each epoch, or loss of each step if the request was not for whole epochs.
        peak_bytes: largest resident memory of the process so far.
        versions: versions of the relevant packages.
        more: further values, by name.
    """

    seconds: float
    losses: Sequence[float]
    peak_bytes: int
    versions: str
    more: Mapping[str, Any] = field(default_factory=dict)


class FailedError(Exception):
    """A contestant cannot take part; the message says why."""


class Worker:
    """A running contestant, blocked on its input between requests.

    Args:
        contestant: contestant to start.
        task: argument of its command line.
        folder: folder for caches shared between processes; a new folder means a cold first start.

    Raises:
        FailedError: its environment is missing.

    Example:
        with Worker(NUMPY, problem.to_json(), folder) as worker:
            first = worker.ask(1)
    """

    def __init__(self, contestant: Contestant, task: str, folder: Path) -> None:
        self.contestant = contestant
        program = [str(python(contestant.environment)), "-m", f"benchmarks.contestants.{contestant.module}", task]
        variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **contestant.variables}
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        if contestant.cached:
            variables |= {
                "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        # Installed packages have cached bytecode, so our source may cache its own, for comparable starts.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._asked = time.perf_counter()
        self._process = subprocess.Popen(
            [*contestant.prefix, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env=variables,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._fresh = True

    def ask(self, steps: int, patience: float = PATIENCE) -> Answer:
        """Requests a number of training steps.

        Args:
            steps: number of steps.
            patience: longest wait in seconds.

        Raises:
            FailedError: the process died, or the answer did not come in time.
        """
        asked = self._asked if self._fresh else time.perf_counter()
        self._fresh = False
        try:
            self._questions.write(json.dumps({"steps": steps}).encode() + b"\n")
            self._questions.flush()
        except BrokenPipeError as error:
            raise FailedError(self._last_words()) from error
        ready, _, _ = select.select([self._answers], [], [], patience)
        if not ready:
            raise FailedError(f"no answer within {patience:.0f} s")
        line = self._answers.readline()
        seconds = time.perf_counter() - asked
        if not line:
            raise FailedError(self._last_words())
        answer = json.loads(line)
        known = {name: answer.pop(name) for name in ("losses", "peak_bytes", "versions")}
        return Answer(seconds, **known, more=answer)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        # Killed, because frameworks are slow to exit by themselves.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with status {self._process.returncode}: {lines[-1][:300] if lines else 'no message'}"


def python(environment: Literal["project", "peers"]) -> Path:
    """Returns the interpreter of an environment.

    Raises:
        FailedError: it does not exist.
    """
    if environment == "project":
        return Path(sys.executable)
    path = PEERS / "bin" / "python"
    if not path.exists():
        raise FailedError(f"{PEERS.name} is missing: run `make peers`")
    return path

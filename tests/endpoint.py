"""A repository with a model that classifies digits, and `highway serve` over it in a separate process."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx2 as httpx
import numpy as np
from fastapi.testclient import TestClient

ROOT = Path(__file__).parents[1]


def make_repository(root: Path) -> Path:
    """Trains a small net on real digits for some seconds, exports it with its gates, and returns the repository."""
    import keras

    import highway_keras
    from pipelines.export.export import export
    from tests.digits import all_digits
    from tests.finished_run import finished

    keras.utils.set_random_seed(0)
    images, labels = all_digits()
    net = highway_keras.from_preset("mnist_dense_10", depth=4, width=64)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    net.fit(images[..., None].astype("float32") / 256, labels, 128, epochs=12, verbose=0)
    export(finished(root / "runs" / "digits", net).path, root / "aside" / "digits")
    return (root / "aside").rename(root / "models")


def add_version(model: Path, number: int, source: int = 1) -> None:
    """Copies a version as `highway export` leaves one: complete or absent."""
    aside = model / f".{number}"
    shutil.copytree(model / str(source), aside)
    manifest = aside / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": number}))
    aside.rename(model / str(number))


def add_bad_version(model: Path, number: int) -> None:
    """Adds a version with a file that was damaged on the way."""
    aside = model / f".{number}"
    shutil.copytree(model / "1", aside)
    (aside / "model.onnx").write_bytes(b"damaged")
    aside.rename(model / str(number))


def highway(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program."""
    command = [sys.executable, "-m", "pipelines", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


class Endpoint:
    """`highway serve` as a user starts it; stopped at the end of the block.

    Args:
        models: the repository, or its URL.
        log: file for its output.
        words: further arguments of the command.
        environment: further environment variables.
    """

    program = ("-m", "pipelines")

    def __init__(self, models: Path | str, log: Path, *words: str, **environment: str) -> None:
        command = [sys.executable, *self.program, "serve", str(models), "--port", "0", *words]
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=file)
        try:
            self.url = self._started()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def _started(self) -> str:
        def written() -> re.Match[str] | None:
            assert self.process.poll() is None, self._log.read_text()
            return re.search(r"at http://\S+:(\d+)(?: and grpc://(\S+))?\n", self._log.read_text())

        eventually(written, 60)
        self.grpc = written()[2]
        url = f"http://127.0.0.1:{written()[1]}"
        # Without certificates, which take longer to load than the endpoint takes to answer.
        with httpx.Client(base_url=url, timeout=60, verify=False) as client:
            eventually(lambda: is_loaded(client.get("/v2/health/ready")), 60)
        return url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Stops it and returns its exit status."""
        self.process.send_signal(how)
        return self.process.wait(60)

    def log(self) -> list[dict]:
        """Returns the log entries after its first line, without one that is still being written."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()[1:]]


# Images for the version made by hand.
IMAGES = np.random.default_rng(1).integers(0, 256, (3, 4, 3, 1), dtype="uint8")


class LoadedClient(TestClient):
    """A client of an app in this process, entered once the app has loaded its repository."""

    def __enter__(self) -> Self:
        """Waits until the models are loaded and returns the client."""
        super().__enter__()
        eventually(lambda: is_loaded(self.get("/v2/health/ready")))
        return self


def is_loaded(ready: httpx.Response) -> bool:
    """Returns whether an endpoint has checked its whole repository, judging by its readiness response."""
    return "being loaded" not in ready.text


def eventually(test, seconds: float = 20.0) -> None:
    """Waits until a condition holds."""
    until = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)

"""Resident memory of the endpoint and its child processes: the terms of the sum in docs/serving.md.

It is read from `/proc`, so on Linux only. Unlike speed, it does not depend on the other load of the machine.
"""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from benchmarks import data, serving
from benchmarks.batch_inference import encoded
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from benchmarks.web_servers import PATIENCE, Running

MODELS, ROUNDS = 4, 3
MB = 1_000_000
# Side of the largest image that `picture.onnx` sees without scaling, in pixels.
SIDE = 999
# Enough images for their JSON, nested lists of pixels, to be parsed in a separate process.
LISTED = 32
START_COST = 15.0


def run(session: Session) -> Iterator[Row]:
    """Measures each term in several starts of the endpoint; if quick, in one."""
    models = _repository(session)
    name, images, _ = data.mnist(LISTED, quick=session.quick)
    found: dict[str, list[float]] = {}
    for turn in range(1 if session.quick else ROUNDS):
        for measure, size in _measured(models, images).items():
            found.setdefault(measure, []).append(size / MB)
        session.spent(START_COST, f"memory: round {turn + 1}")
    template = Row("memory", unit="MB", contestant=serving.OURS.name, ours=True, data=f"{name}, mnist_dense_50")
    for measure, sizes in found.items():
        yield session.row(replace(template, measure=measure), sizes)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return START_COST if session.quick else serving.EXPORT_COST + ROUNDS * START_COST


BENCHMARK = Benchmark("memory", "How much memory do the endpoint and its child processes take?", run, cost)


def _repository(session: Session) -> Path:
    """Copies the version of the serving benchmark into a repository of several models."""
    version, models = serving.exported(session), session.folder / "memory"
    for number in range(MODELS):
        folder = models / f"dense-{number}" / "1"
        shutil.copytree(version, folder, dirs_exist_ok=True)
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": folder.parent.name}))
    return models


def _measured(models: Path, images: np.ndarray) -> dict[str, int]:
    """Starts the endpoint and measures each term in turn, in bytes."""
    sizes: dict[str, int] = {}
    with Running(serving.OURS, models, models / "dense-0" / "1") as running:
        endpoint = running.process
        sizes["trying versions, at most"] = _peak_of_trials(running, images[0].tobytes())
        sizes["endpoint with four models"] = before = endpoint.memory_info().rss

        Path(f"/proc/{endpoint.pid}/clear_refs").write_text("5")  # resets the peak
        _post(running.url, "image/png", encoded(images[0, ..., 0], SIDE, "PNG"))
        sizes["image of 999 x 999 pixels in the endpoint"] = _peak(endpoint) - before
        (decoder,) = endpoint.children()
        sizes["decoding process at rest"] = decoder.memory_info().rss

        address = running.url.partition("/predict/")[0]
        body = json.dumps({"instances": images.tolist()}).encode()
        _post(f"{address}/v1/models/dense-0:predict", "application/json", body)
        (parser,) = set(endpoint.children()) - {decoder}
        sizes["JSON process at rest"] = parser.memory_info().rss
    return sizes


def _peak_of_trials(running: Running, pixels: bytes) -> int:
    """Returns the peak memory of any child process until all versions are loaded and no child is left."""
    largest, endpoint = 0, running.process

    def loaded() -> bool:
        nonlocal largest
        children = endpoint.children()
        for child in children:
            with suppress(OSError):
                largest = max(largest, _peak(child))
        return largest > 0 and not children

    _until(loaded)
    running.wait(pixels)
    return largest


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"the endpoint was not ready within {PATIENCE:.0f} s")
        time.sleep(0.02)


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _post(url: str, kind: str, body: bytes) -> None:
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer.read()

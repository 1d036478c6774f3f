"""Batch inference by `highway predict --out`, here or on a cluster, or by decoding and `InferenceSession.run` alone.

The task names the method ("job"; "threads", where no processes take over; or "bare"), the model, the images, a folder
to write to, and the batch size of the bare loop, the address of the cluster, or the only core to use.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console

from benchmarks.worker import Train, serve
from pipelines.core import environment
from pipelines.core.cluster_executor import ClusterExecutor
from pipelines.core.executor import Executor
from pipelines.inference.inputs import Listing, sources
from pipelines.inference.job import PredictionJob, run
from pipelines.training.processes.local_executor import LocalExecutor
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.model import Model, open_model


def start(task: str) -> Train:
    """Opens the model; see `benchmarks.worker`."""
    settings = json.loads(task)
    if "core" in settings:
        os.sched_setaffinity(0, {settings["core"]})
    model = Path(settings["model"])
    work = _bare(model, settings) if settings["what"] == "bare" else _job(model, settings, settings.get("address"))

    def repeat(times: int) -> list[float]:
        return [work() for _ in range(times)]

    return repeat


class _KeptExecutor(ClusterExecutor):
    """Stays connected from one job to the next, so that its processes on the nodes start once."""

    _connected = False

    def __enter__(self) -> Self:
        if not self._connected:
            super().__enter__()
            self._connected = True
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


def _job(model: Path, settings: dict[str, Any], address: str | None) -> Any:
    out = Path(settings["folder"]) / f"predictions-{os.getpid()}.parquet"
    processes = _processes if settings["what"] == "job" and not address else None
    executor = _KeptExecutor(address, print, fresh=0) if address else None
    job = PredictionJob(model, tuple(settings["images"]), out, 3)

    def once() -> float:
        done = run(job, Console(file=StringIO()), executor, processes)
        out.unlink()
        assert not done.unreadable, "all images are readable"
        return float(done.images)

    return once


def _processes(folder: Path) -> Executor:
    """Makes the processes of `highway predict`."""
    return LocalExecutor(folder, environment.cores(), print, trains=False)


def _bare(folder: Path, settings: dict[str, Any]) -> Any:
    """Uses as many threads, but with all files already in memory, and without names, order or results."""
    model = open_model(folder)
    fetched = Listing(sources(settings["images"], None)).fetched()
    contents = [one.content.read_bytes() if isinstance(one.content, Path) else one.content for one in fetched]
    size = settings["batch"]
    batches = [contents[start : start + size] for start in range(0, len(contents), size)]
    pool = ThreadPoolExecutor(environment.cores())

    def once() -> float:
        return float(sum(pool.map(lambda batch: _predicted(model, batch), batches)))

    return once


def _predicted(model: Model, batch: list[Any]) -> int:
    grey = model.manifest.is_grey
    images = np.stack([model.to_input(image_files.decode(content, "", grey=grey)) for content in batch])
    return len(model.session.run([PROBABILITIES], {model.manifest.input.name: images})[0])


if __name__ == "__main__":
    serve(start, "highway-keras", "onnxruntime", "pillow", "pyarrow")

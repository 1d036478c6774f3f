"""`highway train` on real digits: the task names the words, and the steps between two checkpoints.

A question is a run of its own, in as many epochs.
"""

import json
import shutil
import tempfile
import time
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.worker import Train, serve
from pipelines import frameworks
from pipelines.arguments import parse_train


def start(task: str) -> Train:
    """Reads the words; see `benchmarks.worker`."""
    settings = json.loads(task)
    frameworks.load()
    from pipelines.training import checkpoint, loop, table

    spent: list[float] = []
    save = checkpoint.save

    def timed(*arguments: Any) -> None:
        started = time.perf_counter()
        save(*arguments)
        spent.append(time.perf_counter() - started)

    checkpoint.save = timed  # type: ignore[assignment]

    def train(epochs: int) -> dict[str, Any]:
        given = parse_train([*settings["words"], "--epochs", str(epochs)])
        assert given.config
        spent.clear()
        folder = Path(tempfile.mkdtemp(dir=settings["folder"]))
        run = loop.start(given.config, folder / "run", None, Console(file=StringIO()), interval=settings["interval"])
        rows = table.read(run.path / "metrics.csv")
        shutil.rmtree(folder)
        return {
            "losses": [row["loss"] for row in rows],
            # The first epoch compiles.
            "training": rows[-1]["seconds"] - rows[0]["seconds"],
            "whole": run.record.seconds,
            "saves": len(spent),
            "saving": sum(spent),
        }

    return train


if __name__ == "__main__":
    serve(start, "highway-keras", "keras", "tensorflow-cpu", "jax")

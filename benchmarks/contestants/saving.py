"""`highway train` on real digits with a checkpoint in every few epochs; the task names the words, and how many.

A question is a run of its own, in as many epochs.
"""

import itertools
import json
import shutil
import tempfile
import time
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.worker import Train, serve
from pipelines import recipes
from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.parsing import parse_over


def start(task: str) -> Train:
    """Reads the words; see `benchmarks.worker`."""
    settings = json.loads(task)
    frameworks.load()
    import keras

    from pipelines.training import checkpoint, launch, table

    saves: list[tuple[float, float]] = []
    ends: list[float] = []
    save = checkpoint.save

    def timed(*arguments: Any) -> None:
        started = time.perf_counter()
        save(*arguments)
        saves.append((started, time.perf_counter() - started))

    checkpoint.save = timed  # type: ignore[assignment]

    # The time at the end of each epoch.
    timer = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: ends.append(time.perf_counter()))

    def train(epochs: int) -> dict[str, Any]:
        recipe, *words = settings["words"]
        default = recipes.get(recipe).config
        config = parse_over(Config, default, [*words, "--epochs", str(epochs)], "saving", "Overrides of the recipe.")
        saves.clear()
        ends.clear()
        folder = Path(tempfile.mkdtemp(dir=settings["folder"]))
        interval = settings["every"] * (settings["examples"] // config.batch_size)
        run = launch.start(config, folder / "run", launch.Options(None, Console(file=StringIO()), interval, [timer]))
        rows = table.read(run.path / "metrics.csv")
        shutil.rmtree(folder)
        return {
            "losses": [row["loss"] for row in rows],
            # Of all epochs but the first, which compiles.
            "epochs": [end - before for before, end in itertools.pairwise(ends)],
            "saves": [
                [seconds for started, seconds in saves if before < started <= end]
                for before, end in itertools.pairwise(ends)
            ],
        }

    return train


if __name__ == "__main__":
    serve(start, "highway-keras", "keras", "tensorflow-cpu", "jax")

"""`python -m benchmarks.cores`: pictures a second of a model's batches on one core and on all, without HTTP.

    python -m benchmarks.cores models/digits models/dense50

Clients in the same process ask the endpoint's own queue, each again as soon as it has its answer. `wrk` would take a
part of the cores that are measured.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from serving.batching import Batcher
from serving.model import Model, open_model
from serving.settings import Settings, cores

# Clients, and pictures of a request.
LOADS = ((1, 1), (16, 1), (64, 1), (16, 16))


def main(words: list[str] | None = None) -> int:
    """Measures, and prints a line for each model and load.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, help="models or version folders")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, for each number of cores")
    parser.add_argument("--threads", type=int, default=cores(), help="batches at the same time; as many as cores")
    asked = parser.parse_args(words)
    for path in asked.models:
        model = open_model(path)
        for clients, pictures in LOADS:
            found: dict[int, list[float]] = {1: [], asked.threads: []}
            for turn in range(asked.rounds):
                for threads in list(found)[:: -1 if turn % 2 else 1]:
                    found[threads].append(throughput(model, threads, clients, pictures, asked.seconds))
            sys.stdout.write(
                f"{model.manifest.name}, {clients} x {pictures}: {_shown(found[1], found[asked.threads])}\n"
            )
            sys.stdout.flush()
    return 0


def throughput(model: Model, threads: int, clients: int, pictures: int, seconds: float) -> float:
    """Measures pictures a second.

    Args:
        model: of a version.
        threads: batches at the same time.
        clients: who ask at the same time.
        pictures: of a request.
        seconds: to measure for.
    """
    images = np.zeros((pictures, *model.manifest.input.shape[1:]), np.uint8)
    limits = Settings(Path())
    with ThreadPoolExecutor(threads) as executor:
        batcher = Batcher(model.predict, limits.batch, clients * pictures, executor, parallel=threads)

        async def client(until: float) -> int:
            answered = 0
            while time.perf_counter() < until:
                answered += len((await batcher.predict(images))["probabilities"])
            return answered

        async def measured() -> float:
            # The time of an image is not known before the first.
            await batcher.predict(images)
            start = time.perf_counter()
            counts = await asyncio.gather(*(client(start + seconds) for _ in range(clients)))
            return sum(counts) / (time.perf_counter() - start)

        return asyncio.run(measured())


def _shown(one: Sequence[float], all_: Sequence[float]) -> str:
    ratios = [after / before for before, after in zip(one, all_, strict=True)]
    return (
        f"{statistics.median(one):,.0f} pictures/s on one core, {statistics.median(all_):,.0f} on all: "
        f"{statistics.median(ratios):.2f} times [{min(ratios):.2f} to {max(ratios):.2f}]"
    )


if __name__ == "__main__":
    sys.exit(main())

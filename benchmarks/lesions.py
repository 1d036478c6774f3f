"""Time to close each layer of a 50-layer net in turn over 60,000 images, with our library and with Keras alone."""

import json
import time
from contextlib import ExitStack

import numpy as np

from benchmarks import data
from benchmarks.agreement import Check
from benchmarks.controller import Contestant, Worker
from benchmarks.roster import JAX, TENSORFLOW
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row

IMAGES, QUICK_IMAGES = 60_000, 500
ROUNDS = 3
# Images of a first request, which compiles the programs before the rounds.
WARM_UP = 500
CURVE = Check("loss without a layer", 1e-3)


def _contestant(name: str, way: str, variables: dict[str, str]) -> Contestant:
    return Contestant(name, "lesioning", "project", (way,), variables, ours=way == "ours")


# Losses are compared with the first contestant's.
CONTESTANTS = (
    _contestant("gates shut by weights, Keras on JAX", "closed", JAX),
    _contestant("gates shut by weights, Keras on TensorFlow", "closed", TENSORFLOW),
    _contestant("net rebuilt without the layer, Keras on JAX", "rebuilt", JAX),
    _contestant("ours, JAX", "ours", JAX),
    _contestant("ours, TensorFlow", "ours", TENSORFLOW),
)
QUICK = (CONTESTANTS[0], CONTESTANTS[3])
# Approximate seconds per start, and per round of all contestants.
START_COST, ROUND_COST = 15.0, 220.0


def run(session: Session) -> list[Row]:
    """Measures the time of all lesions, with contestants taking turns."""
    contestants = QUICK if session.quick else CONTESTANTS
    images, rounds = (QUICK_IMAGES, 1) if session.quick else (IMAGES, ROUNDS)
    where = f"lesions, {images:,} images"
    name, pixels, labels = data.mnist(images, quick=session.quick)
    file = session.folder / "lesions.npz"
    np.savez(file, images=pixels, labels=labels)
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    curves: dict[str, list[float]] = {}
    with ExitStack() as running:
        workers: list[Worker] = []
        for contestant in contestants:
            task = json.dumps({"way": contestant.options[0], "data": str(file)})
            if (worker := session.start(contestant, task, where)) is None:
                continue
            workers.append(running.enter_context(worker))
            # Rebuilt nets cannot warm up: each one is compiled anew.
            session.ask(worker, 0 if session.quick or "rebuilt" in contestant.options else WARM_UP, where)
        session.spent(START_COST * len(contestants), f"{where}: started")
        for turn in range(rounds):
            for worker in workers[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                if answer := session.ask(worker, images, where):
                    seconds[worker.contestant.name].append(answer.seconds)
                    curves[worker.contestant.name] = list(answer.losses)
            session.spent(_rounds_cost(session) / rounds, f"{where}: round {turn + 1}")
    session.check(where, CURVE, {one.name: curves[one.name] for one in contestants if one.name in curves})
    template = Row("lesions", f"each of 49 layers closed, {images:,} images", "s", depth=49, width=50, data=name)
    return session.rows(template, seconds, {contestant.name: contestant for contestant in contestants})


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return START_COST * len(QUICK if session.quick else CONTESTANTS) + _rounds_cost(session)


BENCHMARK = Benchmark("lesions", "How long does closing each of 49 layers in turn take?", run, cost)


def _rounds_cost(session: Session) -> float:
    return 5.0 if session.quick else ROUNDS * ROUND_COST

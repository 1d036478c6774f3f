"""Speed of the training input pipeline, in images per second, and the share of a step spent waiting for it.

The share is measured in two ways: as the time spent fetching the next batch, and as the slowdown relative to training
on a single batch again and again, which also counts the cores that the pipeline takes away from the step.
"""

import json
from contextlib import ExitStack
from dataclasses import replace

from benchmarks import data, roster
from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from pipelines import recipes

ALONE = Contestant("input alone", "training_input", "project", variables=roster.TENSORFLOW, ours=True)
LIVE = Contestant("training on the input", "training_input", "project", variables=roster.TENSORFLOW, ours=True)
CONSTANT = Contestant("training on one batch", "training_input", "project", variables=roster.TENSORFLOW, ours=True)
WHAT = {ALONE.name: "alone", LIVE.name: "live", CONSTANT.name: "constant"}
STEPS, ROUNDS = 5, 5
# Approximate seconds per start, and per round of all contestants.
START_COST, ROUND_COST = 10.0, 10.0


def run(session: Session) -> list[Row]:
    """Measures the pipeline of the recipe `cifar10_19`, or of `demo` if quick; without CIFAR-10, leaves a note."""
    recipe = "demo" if session.quick else "cifar10_19"
    config = recipes.get(recipe).config
    if not session.quick and not data.is_prepared(config.data):
        session.note(f"input: skipped, {config.data} is not prepared: run `highway data prepare {config.data}`")
        session.expect(-cost(session))
        return []
    precision = "float32" if session.quick else _precision(session)
    steps = {LIVE.name: STEPS} if session.quick else {ALONE.name: 100 * STEPS, LIVE.name: STEPS, CONSTANT.name: STEPS}
    rounds = 1 if session.quick else ROUNDS
    template = Row("input", batch=config.batch_size, precision=precision, data=f"{config.data}, {recipe}")
    answers = _alternate(session, recipe, precision, steps, rounds)
    by_name = {contestant.name: contestant for contestant in (ALONE, LIVE, CONSTANT)}
    speeds = {
        name: [steps[name] * config.batch_size / answer.seconds for answer in given] for name, given in answers.items()
    }
    rows = session.rows(replace(template, measure="steady state", unit="images/s"), speeds, by_name)
    live, constant = answers[LIVE.name], answers.get(CONSTANT.name)
    if live and constant:
        shares = {
            "in taking the next batch": [answer.more["waiting"] / answer.seconds for answer in live],
            "longer than on one batch": [
                1 - other.seconds / answer.seconds for answer, other in zip(live, constant, strict=True)
            ],
        }
        views = {name: replace(LIVE, name=name) for name in shares}
        rows += session.rows(replace(template, measure="share of a step", unit="of its time"), shares, views)
    return [replace(row, versions=live[0].versions) for row in rows if live]


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return START_COST if session.quick else 3 * START_COST + ROUNDS * ROUND_COST


BENCHMARK = Benchmark("input", "Does training wait for its input pipeline?", run, cost)


def _alternate(
    session: Session, recipe: str, precision: str, steps: dict[str, int], rounds: int
) -> dict[str, list[Answer]]:
    workers: dict[str, Worker] = {}
    answers: dict[str, list[Answer]] = {name: [] for name in steps}
    with ExitStack() as running:
        for contestant in (one for one in (ALONE, LIVE, CONSTANT) if one.name in steps):
            task = json.dumps({"recipe": recipe, "what": WHAT[contestant.name], "precision": precision})
            worker = session.start(contestant, task, "input")
            if worker:
                workers[contestant.name] = running.enter_context(worker)
                session.ask(worker, 2, "input")
            session.spent(START_COST, f"input: {contestant.name} is warm")
        for turn in range(rounds):
            for name in list(workers)[:: -1 if turn % 2 else 1]:
                answer = session.ask(workers[name], steps[name], "input")
                if answer:
                    answers[name].append(answer)
            session.spent(0 if session.quick else ROUND_COST, f"input: round {turn + 1}")
    return answers


def _precision(session: Session) -> str:
    """Returns the precision that `--precision auto` chooses for a convolutional net on this CPU."""
    return "mixed_bfloat16" if session.has_bfloat16 else "float32"

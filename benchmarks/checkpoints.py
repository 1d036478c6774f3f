"""What checkpoints cost: the same training with those of the default, and with none but the last."""

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.session import PAUSE, Session
from benchmarks.table import Row

ROUNDS, QUICK_ROUNDS = 3, 1
NEVER = 10**9
# A warm-up that short runs have steps for.
WORDS = ("--data", "mnist_5k", "--schedule.warmup-steps", "10")
# About the seconds of a start and of a turn.
START_COST, TURN_COST = 15.0, 30.0


@dataclass(frozen=True)
class Net:
    """What is trained.

    Args:
        recipe: on 4 000 of the digits of `mnist_5k`.
        backend: of Keras.
        epochs: about half a minute.
    """

    recipe: str
    backend: str
    epochs: int


NETS = (Net("demo", "tensorflow", 14), Net("mnist_dense_50", "tensorflow", 60), Net("mnist_dense_50", "jax", 60))


def run(session: Session) -> list[Row]:
    """Measures the seconds of a training after its first epoch, in turn.

    Args:
        session: of this run.

    Returns:
        The rows, with the ratio of each round.
    """
    return [row for net in (NETS[:1] if session.quick else NETS) for row in _measured(session, net)]


def cost(session: Session) -> float:
    """About the seconds that `run` takes."""
    return sum(_cost(session, net) for net in (NETS[:1] if session.quick else NETS))


def _cost(session: Session, net: Net) -> float:
    turns = 1 + (QUICK_ROUNDS if session.quick else ROUNDS)
    return 2 * (START_COST + turns * TURN_COST * _epochs(session, net) / net.epochs)


def _epochs(session: Session, net: Net) -> int:
    return 3 if session.quick else net.epochs


def _measured(session: Session, net: Net) -> list[Row]:
    variables = {"KERAS_BACKEND": net.backend}
    with_them = Contestant("checkpoints as by default", "saving", "project", variables=variables, ours=True)
    without = Contestant("the last checkpoint only", "saving", "project", variables=variables)
    where = f"checkpoints, {net.recipe}, {net.backend}"
    answers: dict[str, list[Answer]] = {with_them.name: [], without.name: []}
    rounds, epochs = QUICK_ROUNDS if session.quick else ROUNDS, _epochs(session, net)
    with ExitStack() as running:
        workers: list[Worker] = []
        for contestant, interval in ((with_them, "auto"), (without, NEVER)):
            task = {"words": [net.recipe, *WORDS], "interval": interval, "folder": str(session.folder)}
            if worker := session.start(contestant, json.dumps(task), where):
                workers.append(running.enter_context(worker))
                session.ask(worker, 2, where)
        for turn in range(rounds):
            for worker in workers[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                if answer := session.ask(worker, epochs, where):
                    answers[worker.contestant.name].append(answer)
            session.spent(_cost(session, net) / rounds, f"{where}: round {turn + 1}")
    for name, given in answers.items():
        for answer in given:
            more = answer.more
            session.say(f"{where}: {name}: {more['saves']:.0f} took {more['saving'] / more['whole']:.2%} of the time")
    template = Row(
        "checkpoints", f"seconds of {epochs - 1} epochs of {net.recipe}, {net.backend}", "s", data="mnist_5k"
    )
    seconds = {name: [answer.more["training"] for answer in given] for name, given in answers.items()}
    return session.rows(template, seconds, {one.name: one for one in (with_them, without)})

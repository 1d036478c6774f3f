"""What checkpoints cost: in one training, epochs with a save and the ones after them beside epochs without.

Whole trainings with and without saves differ by chance more than by them: by 5 to 15 % where 2 % is the question.
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks import table
from benchmarks.controller import Contestant
from benchmarks.session import PAUSE, Session
from benchmarks.table import Row

ROUNDS, QUICK_ROUNDS = 5, 1
EVERY = 4
"""Epochs to a save: one in which it is, one that it may slow down, and two to compare with."""
EXAMPLES = 4000
"""To train on."""
# A warm-up that short runs have steps for.
WORDS = ("--data", "mnist_5k", "--schedule.warmup-steps", "10")
SAVING = Contestant("with a save in the first", "saving", "project", ours=True)
NOT = Contestant("without", "saving", "project")
# About the seconds of a start.
START_COST = 15.0


@dataclass(frozen=True)
class Net:
    """What is trained.

    Args:
        recipe: on 4 000 of the digits of `mnist_5k`.
        backend: of Keras.
        epochs: of a round.
        seconds: about those of a round.
    """

    recipe: str
    backend: str
    epochs: int
    seconds: float


NETS = (
    Net("demo", "tensorflow", 25, 60.0),
    Net("mnist_dense_50", "tensorflow", 81, 35.0),
    Net("mnist_dense_50", "jax", 81, 30.0),
)


@dataclass(frozen=True)
class Found:
    """What one training shows, in seconds.

    Args:
        saving: of an epoch with a save and the one after it, the mean of all.
        other: of two epochs without, the mean of all.
        save: of a save alone, the mean of all.
    """

    saving: float
    other: float
    save: float

    @property
    def share(self) -> float:
        """Of the time of a training, what its checkpoints cost by default, in percent.

        They take `SHARE` by themselves; with what follows it is as many times more as here.
        """
        # Imports Keras, which nothing else here needs.
        from pipelines.training.checkpoint import SHARE

        return 100 * SHARE * (self.saving - self.other) / self.save


def run(session: Session) -> list[Row]:
    """Measures epochs with and without a save, in turn.

    Args:
        session: of this run.

    Returns:
        The rows: seconds of two epochs either way, and what checkpoints cost by default.
    """
    return [row for net in _nets(session) for row in _measured(session, net)]


def cost(session: Session) -> float:
    """About the seconds that `run` takes."""
    return sum(_cost(session, net) for net in _nets(session))


def found(epochs: Sequence[float], saves: Sequence[Sequence[float]]) -> Found:
    """What a training shows.

    Args:
        epochs: seconds of each but the first.
        saves: seconds of the saves in each.

    Returns:
        Means over those epochs that belong to a whole turn: one with a save, the next, and two without.

    Raises:
        ValueError: there is no such turn.

    Example:
        found([1.5, 1.1, 1.0, 1.0], [[0.4], [], [], []])  # Found(saving=2.6, other=2.0, save=0.4)
    """
    first = next((place for place, some in enumerate(saves) if some), len(saves))
    turns = [
        (epochs[place] + epochs[place + 1], epochs[place + 2] + epochs[place + 3], sum(saves[place]))
        for place in range(first, len(epochs) - EVERY + 1, EVERY)
        if saves[place] and not any(saves[place + 1 : place + EVERY])
    ]
    if not turns:
        raise ValueError(f"no epoch with a save and {EVERY - 1} without after it: train for more epochs")
    return Found(*(statistics.mean(column) for column in zip(*turns, strict=True)))


def _nets(session: Session) -> Sequence[Net]:
    return NETS[:1] if session.quick else NETS


def _rounds(session: Session) -> int:
    return QUICK_ROUNDS if session.quick else ROUNDS


def _epochs(session: Session, net: Net) -> int:
    # The first compiles, and the last save is after the end.
    return 2 * EVERY + 1 if session.quick else net.epochs


def _cost(session: Session, net: Net) -> float:
    return START_COST + (_rounds(session) + 0.1) * net.seconds * _epochs(session, net) / net.epochs


def _measured(session: Session, net: Net) -> list[Row]:
    where = f"checkpoints, {net.recipe}, {net.backend}"
    task = {"words": [net.recipe, *WORDS], "every": EVERY, "examples": EXAMPLES, "folder": str(session.folder)}
    worker = session.start(replace(SAVING, variables={"KERAS_BACKEND": net.backend}), json.dumps(task), where)
    if worker is None:
        return []
    rounds: list[Found] = []
    with worker:
        session.ask(worker, 2, where)
        for turn in range(_rounds(session)):
            time.sleep(PAUSE)
            if answer := session.ask(worker, _epochs(session, net), where):
                rounds.append(found(answer.more["epochs"], answer.more["saves"]))
            session.spent(_cost(session, net) / _rounds(session), f"{where}: round {turn + 1}")
    if not rounds:
        return []
    template = Row("checkpoints", f"seconds of two epochs of {net.recipe}, {net.backend}", "s", data="mnist_5k")
    seconds = {SAVING.name: [one.saving for one in rounds], NOT.name: [one.other for one in rounds]}
    made = session.rows(template, seconds, {one.name: one for one in (SAVING, NOT)})
    median, low, high = table.spread([one.share for one in rounds])
    save = statistics.median(one.save for one in rounds)
    session.say(f"{where}: a save takes {1000 * save:.1f} ms")
    whole = replace(
        template,
        measure=f"checkpoints by default and what follows them, of the time of {net.recipe}, {net.backend}",
        unit="%",
        contestant="checkpoints as by default",
        ours=True,
        median=median,
        low=low,
        high=high,
        rounds=len(rounds),
        machine=session.machine,
        command=session.command,
    )
    return [*made, whole]

"""The state shared by the benchmarks of a run: folders, notes, progress, and the comparison of contestants."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from benchmarks import agreement, table
from benchmarks.agreement import Check
from benchmarks.controller import Answer, Contestant, FailedError, Worker
from benchmarks.table import Row
from pipelines.core.durations import remaining
from pipelines.core.environment import NARROW

# Seconds between two turns. A contestant's threads keep spinning after its turn, but not for this long.
PAUSE = 0.3


class Participant(Protocol):
    """Anything that is compared."""

    @property
    def ours(self) -> bool:
        """True if it belongs to this project."""


@dataclass(frozen=True)
class Roof:
    """The best rates of all libraries on all cores.

    Args:
        flops: floating-point operations per second in large float32 products.
        bfloat16_flops: the same in bfloat16; None if no library measured it.
        small_flops: the same in products as small as those of a step with 50 units.
        bandwidth: bytes per second read and written.
    """

    flops: float
    bfloat16_flops: float | None
    small_flops: float
    bandwidth: float


@dataclass
class Session:
    """A run of the benchmarks.

    Args:
        folder: folder for files that workers read.
        results: folder for tables and figures.
        quick: whether to show only that everything runs.
        command: the command line.
        machine: processor, its features and cores.
    """

    folder: Path
    results: Path
    quick: bool
    command: str
    machine: str
    roof: Roof | None = None
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    _started: float = field(default_factory=time.perf_counter)
    _expected: float = 0.0
    _spent: float = 0.0

    @property
    def has_bfloat16(self) -> bool:
        """True if the CPU has instructions for bfloat16. Without them, one product of the roof takes a minute."""
        return not {*NARROW["mixed_bfloat16"]}.isdisjoint(self.machine.split())

    def say(self, line: str) -> None:
        """Writes a line of progress."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def expect(self, cost: float) -> None:
        """Announces work; costs may be in any unit, but all in the same."""
        self._expected += cost

    def spent(self, cost: float, line: str) -> None:
        """Reports that some of the expected work is done, with an estimate of the time left."""
        self._spent += cost
        share = self._spent / max(self._spent, self._expected)
        # The first work reported may have cost 0.
        seconds = remaining(time.perf_counter() - self._started, share, 1.0)
        left = "nothing done" if seconds is None else f"{_time(seconds)} left"
        self.say(f"[{share:4.0%}, {left}] {line}")

    def skip(self, contestant: Contestant, where: str, why: str) -> None:
        """Notes a contestant that does not take part."""
        self.note(f"{where}: {contestant.name} is skipped: {why}")

    def note(self, line: str) -> None:
        """Prints a line now, and again at the end of the run."""
        self.skipped.append(line)
        self.say(line)

    def start(self, contestant: Contestant, task: str, where: str) -> Worker | None:
        """Starts a worker; returns None, and notes it, if its environment is missing."""
        try:
            return Worker(contestant, task, self.folder)
        except FailedError as error:
            self.skip(contestant, where, str(error))
            return None

    def ask(self, worker: Worker, steps: int, where: str) -> Answer | None:
        """Asks a worker; returns None, and notes it, if it failed."""
        try:
            return worker.ask(steps)
        except FailedError as error:
            self.failed.append(f"{where}: {worker.contestant.name} failed: {error}")
            self.say(self.failed[-1])
            return None

    def check(self, where: str, check: Check, curves: Mapping[str, Sequence[float]]) -> None:
        """Compares loss curves with the first, and notes those that disagree."""
        if curves:
            worst = max(agreement.deviations(curves).values())
            self.say(f"{where}: {check.name} within {worst:.2g} of {next(iter(curves))}")
            self.disagreements += [f"{where}: {one}" for one in agreement.disagreements(check, curves)]

    def row(self, template: Row, values: Sequence[float]) -> Row:
        """Completes a row with the spread of its values, and with machine and command.

        Args:
            template: row with all other fields.
            values: one number per round.
        """
        median, low, high = table.spread(values)
        return replace(
            template,
            median=median, low=low, high=high, rounds=len(values), machine=self.machine, command=self.command,
        )  # fmt: skip

    def rows(self, template: Row, values: dict[str, list[float]], contestants: Mapping[str, Participant]) -> list[Row]:
        """Makes a row for each contestant, with its ratio to the best peer.

        Args:
            template: fields that the rows share. Units per second, such as "steps/s", are better higher, others lower.
            values: one number per round, by contestant; contestants without any are left out.
            contestants: contestants by name.
        """
        higher = template.unit.endswith("/s")
        values = {name: rounds for name, rounds in values.items() if rounds}
        peers = {name: rounds for name, rounds in values.items() if not contestants[name].ours}
        peer = table.best(peers, higher) if peers else ""
        rows = []
        for name, rounds in values.items():
            row = self.row(replace(template, contestant=name, ours=contestants[name].ours), rounds)
            if peer and len(values) > 1:
                ratio, ratio_low, ratio_high = table.spread(table.ratios(rounds, peers[peer], higher))
                row = replace(row, best_peer=peer, ratio=ratio, ratio_low=ratio_low, ratio_high=ratio_high)
            rows.append(row)
        return rows


@dataclass(frozen=True)
class Benchmark:
    """A row of the table of benchmarks.

    Args:
        name: name on the command line, and of its table.
        question: question that it answers.
        run: measures, and yields rows as they are completed.
        cost: estimates how many seconds `run` takes.
        uses_roof: whether it reports shares of the machine's roof, which is then measured first.
    """

    name: str
    question: str
    run: Callable[[Session], Iterable[Row]]
    cost: Callable[[Session], float]
    uses_roof: bool = False


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

"""What all sections of a run share: where results go, what was skipped, and how far the run is."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from benchmarks import agreement, table
from benchmarks.agreement import Check
from benchmarks.controller import Answer, Contestant, FailedError, Worker
from benchmarks.table import Row

# Seconds between two turns: longer than the threads of a contestant spin on after its turn.
PAUSE = 0.3


class Participant(Protocol):
    """Whoever takes part."""

    @property
    def ours(self) -> bool:
        """Whether it is what this project offers."""


@dataclass
class Session:
    """A run of the benchmarks.

    Args:
        folder: for files that workers read.
        results: for CSV, text and figures.
        quick: whether a minute has to do.
        command: that started it.
        machine: processor, its features and cores.
    """

    folder: Path
    results: Path
    quick: bool
    command: str
    machine: str
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    _started: float = field(default_factory=time.perf_counter)
    _expected: float = 0.0
    _spent: float = 0.0

    def say(self, line: str) -> None:
        """A line for whoever waits."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def expect(self, cost: float) -> None:
        """Announces work; costs are in any unit that is the same for all of them."""
        self._expected += cost

    def spent(self, cost: float, line: str) -> None:
        """Announces that some of the expected work is done, and how much time the rest will take."""
        self._spent += cost
        share = self._spent / max(self._spent, self._expected)
        elapsed = time.perf_counter() - self._started
        # Work that came to nothing may be announced before any that counts.
        left = f"{_time(elapsed * (1 - share) / share)} left" if share else "nothing done"
        self.say(f"[{share:4.0%}, {left}] {line}")

    def skip(self, contestant: Contestant, where: str, why: str) -> None:
        """Takes note of who does not take part, and says so."""
        self.note(f"{where}: {contestant.name} is skipped: {why}")

    def note(self, line: str) -> None:
        """Says something now, and again at the end."""
        self.skipped.append(line)
        self.say(line)

    def start(self, contestant: Contestant, task: str, where: str) -> Worker | None:
        """A worker, or None and a note if its environment is missing."""
        try:
            return Worker(contestant, task, self.folder)
        except FailedError as error:
            self.skip(contestant, where, str(error))
            return None

    def ask(self, worker: Worker, steps: int, where: str) -> Answer | None:
        """A worker's answer, or None and a note if it failed."""
        try:
            return worker.ask(steps)
        except FailedError as error:
            self.failed.append(f"{where}: {worker.contestant.name} failed: {error}")
            self.say(self.failed[-1])
            return None

    def check(self, where: str, check: Check, curves: Mapping[str, Sequence[float]]) -> None:
        """Compares loss curves with the first, and takes note of who learns something else."""
        if curves:
            worst = max(agreement.deviations(curves).values())
            self.say(f"{where}: {check.name} within {worst:.2g} of {next(iter(curves))}")
            self.disagreements += [f"{where}: {one}" for one in agreement.disagreements(check, curves)]

    def rows(self, template: Row, values: dict[str, list[float]], contestants: Mapping[str, Participant]) -> list[Row]:
        """A row for each contestant, with ratios to the best peer.

        Args:
            template: what the rows share; its unit decides what is better: more of "steps/s", less of anything else.
            values: one number a round, by contestant; those that have none are left out.
            contestants: by name.
        """
        higher = template.unit.endswith("/s")
        values = {name: rounds for name, rounds in values.items() if rounds}
        peers = {name: rounds for name, rounds in values.items() if not contestants[name].ours}
        peer = table.best(peers, higher) if peers else ""
        made = []
        for name, rounds in values.items():
            median, low, high = table.spread(rounds)
            row = replace(
                template,
                contestant=name,
                ours=contestants[name].ours,
                median=median,
                low=low,
                high=high,
                rounds=len(rounds),
                machine=self.machine,
                command=self.command,
            )
            if peer and len(values) > 1:
                ratio, ratio_low, ratio_high = table.spread(table.ratios(rounds, peers[peer], higher))
                row = replace(row, best_peer=peer, ratio=ratio, ratio_low=ratio_low, ratio_high=ratio_high)
            made.append(row)
        return made


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

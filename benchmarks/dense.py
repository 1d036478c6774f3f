"""Training speed of dense highway nets by depth and width: first step, steady state, and a whole study."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from benchmarks import agreement, data, problem, roster
from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.problem import BATCH, EPOCH, EPOCHS, Problem
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row

# Starts that take longer than this many seconds are not repeated.
SLOW_START = 12.0


@dataclass(frozen=True)
class Size:
    """A net, and how often it is measured.

    Args:
        depth: highway blocks.
        width: units per block.
        starts: fresh processes for the first step.
        rounds: turns in steady state, after one epoch to warm up.
        epochs: epochs per turn, to fill about a second: for a tenth of a second after another contestant's turn, every
            contestant is up to a quarter slower.
        studies: fresh processes for the whole study.
    """

    depth: int
    width: int = 50
    starts: int = 0
    rounds: int = 0
    epochs: int = 1
    studies: int = 0

    def __str__(self) -> str:
        return f"depth {self.depth:,}, width {self.width}"

    @property
    def start_cost(self) -> float:
        """Estimated seconds per start."""
        return 4 + self.depth / 60

    @property
    def step_cost(self) -> float:
        """Estimated seconds per step."""
        return 1e-4 * self.depth * (1 + self.width**2 / 5e4)


FULL = (
    Size(10, starts=3, rounds=5, epochs=12, studies=1),
    Size(30, rounds=5, epochs=6, studies=1),
    Size(50, rounds=5, epochs=4, studies=1),
    Size(100, starts=1, rounds=5, epochs=2, studies=1),
    Size(1000, starts=1, rounds=3),
)
WIDE = tuple(Size(30, width, rounds=5, epochs=epochs) for width, epochs in ((50, 6), (100, 4), (200, 2), (400, 1)))
QUICK = (Size(10, rounds=1),)


def run(session: Session) -> Iterator[Row]:
    """Measures all contestants at all depths; if quick, some at one depth."""
    yield from _run(session, "dense", *_scope(session, FULL))


def run_wide(session: Session) -> Iterator[Row]:
    """Measures all contestants at all widths; nothing if quick, because `dense` shows that they run."""
    if session.quick:
        session.note("wide: not measured by --quick; dense trains the same contestants")
        return
    yield from _run(session, "wide", *_scope(session, WIDE))


def _run(session: Session, section: str, contestants: Sequence[Contestant], sizes: Sequence[Size]) -> Iterator[Row]:
    name, images, labels = data.mnist(quick=session.quick)
    problem.write(session.folder / "batches.npz", problem.batches(images, labels))
    yield from measure(session, contestants, sizes, name, section)


def measure(
    session: Session, contestants: Sequence[Contestant], sizes: Sequence[Size], data: str, section: str = "dense"
) -> Iterator[Row]:
    """Measures one size after another.

    Args:
        session: session of this run; its folder holds `batches.npz`.
        contestants: contestants to measure; their losses are compared with the first one's.
        sizes: sizes to measure.
        data: name of the data.
        section: name of the benchmark.

    Yields:
        The rows of each size as soon as they are complete, so that an interruption does not lose them.
    """
    for size in sizes:
        for contestant in contestants:
            if contestant not in _able(contestants, size):
                session.skip(contestant, str(size), contestant.because)
        yield from _Measurement(session, _able(contestants, size), size, data, section).rows()


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    return _cost_of(*_scope(session, FULL))


def cost_wide(session: Session) -> float:
    """Estimates how many seconds `run_wide` takes."""
    return 0.0 if session.quick else _cost_of(*_scope(session, WIDE))


BENCHMARK = Benchmark("dense", "How fast do dense highway nets train, by depth?", run, cost, uses_roof=True)
BY_WIDTH = Benchmark(
    "wide", "How fast do highway nets of 30 layers train, by width?", run_wide, cost_wide, uses_roof=True
)


def _scope(session: Session, sizes: Sequence[Size]) -> tuple[Sequence[Contestant], Sequence[Size]]:
    return (roster.DENSE_QUICK, QUICK) if session.quick else (roster.DENSE, sizes)


def _able(contestants: Sequence[Contestant], size: Size) -> list[Contestant]:
    return [one for one in contestants if one.deepest is None or size.depth <= one.deepest]


def _cost_of(contestants: Sequence[Contestant], sizes: Sequence[Size]) -> float:
    return sum(_cost(size, contestant) for size in sizes for contestant in _able(contestants, size))


def _cost(size: Size, contestant: Contestant) -> float:
    rounds = 0 if contestant.cached or not size.rounds else size.rounds * size.epochs + 1
    starts = size.starts + size.studies + bool(rounds) + bool(size.starts and contestant.cached)
    return starts * size.start_cost + (rounds + size.studies * EPOCHS) * EPOCH * size.step_cost


class _Measurement:
    """All measures of one size."""

    def __init__(
        self, session: Session, contestants: Sequence[Contestant], size: Size, data: str, section: str
    ) -> None:
        self.session, self.contestants, self.size, self.roof = session, contestants, size, session.roof
        self.by_name = {contestant.name: contestant for contestant in contestants}
        self.out: set[str] = set()
        self.versions: dict[str, str] = {}
        self.peak: dict[str, list[float]] = {}
        weights = session.folder / "weights.npz"
        problem.write(weights, problem.initial_weights(size.depth, size.width))
        self.problem = Problem(str(session.folder / "batches.npz"), str(weights), size.depth, size.width)
        self.template = Row(section, depth=size.depth, width=size.width, batch=BATCH, data=data)

    def rows(self) -> list[Row]:
        rows = []
        if self.size.starts:
            rows += self._rows("first step from process start", "s", self._starts())
        if self.size.rounds:
            rows += [self._with_roof(row) for row in self._rows("steady state", "steps/s", self._steady())]
        if self.size.studies:
            rows += self._rows(f"study of {EPOCHS} epochs from process start", "s", self._studies())
        if self.peak:
            rows += self._rows("peak memory", "MiB", self.peak)
        return rows

    def _starts(self) -> dict[str, list[float]]:
        seconds: dict[str, list[float]] = {name: [] for name in self.by_name}
        curves: dict[str, list[float]] = {}
        for contestant in self.contestants:
            if contestant.cached and self._train(contestant, [1, EPOCH]):
                self.session.spent(self.size.start_cost, f"{self.size}: {contestant.name} has filled its cache")
        for turn in range(self.size.starts):
            for contestant in self._order(turn):
                if turn and seconds[contestant.name][0] > SLOW_START:
                    self.session.spent(self.size.start_cost, f"{self.size}: {contestant.name} is slow to start, once")
                    continue
                answers = self._train(contestant, [1] * (1 if turn else agreement.FIRST_STEPS))
                if answers:
                    seconds[contestant.name].append(answers[0].seconds)
                    curves.setdefault(contestant.name, [answer.losses[0] for answer in answers])
                    line = f"{self.size}: {contestant.name}, first step after {answers[0].seconds:.2f} s"
                    self.session.spent(self.size.start_cost, line)
        self.session.check(str(self.size), agreement.STEPS, curves)
        return seconds

    def _steady(self) -> dict[str, list[float]]:
        workers: dict[str, Worker] = {}
        speeds: dict[str, list[float]] = {name: [] for name in self.by_name}
        curves: dict[str, list[float]] = {}
        steps = self.size.epochs * EPOCH
        with ExitStack() as running:
            for contestant in self._order(0):
                if contestant.cached:
                    continue
                worker = self.session.start(contestant, self._task(contestant), str(self.size))
                if worker is None:
                    self.out.add(contestant.name)
                    continue
                workers[contestant.name] = running.enter_context(worker)
                answer = self._ask(worker, EPOCH)
                if answer:
                    curves[contestant.name] = list(answer.losses)
                cost = self.size.start_cost + EPOCH * self.size.step_cost
                self.session.spent(cost, f"{self.size}: {contestant.name} is warm")
            for turn in range(self.size.rounds):
                for contestant in self._order(turn):
                    if contestant.name not in workers:
                        continue
                    time.sleep(PAUSE)
                    answer = self._ask(workers[contestant.name], steps)
                    if answer:
                        speeds[contestant.name].append(steps / answer.seconds)
                speeds_now = ", ".join(f"{name} {values[-1]:.4g}" for name, values in speeds.items() if values)
                cost = steps * self.size.step_cost * len(workers)
                self.session.spent(cost, f"{self.size}: round {turn + 1}, steps/s: {speeds_now}")
        self.session.check(str(self.size), agreement.EPOCH, curves)
        return speeds

    def _studies(self) -> dict[str, list[float]]:
        seconds: dict[str, list[float]] = {name: [] for name in self.by_name}
        curves: dict[str, list[float]] = {}
        for turn in range(self.size.studies):
            for contestant in self._order(turn):
                for answer in self._train(contestant, [EPOCHS * EPOCH]):
                    seconds[contestant.name].append(answer.seconds)
                    curves.setdefault(contestant.name, [statistics.mean(answer.losses[EPOCHS // 2 :])])
                    self.peak.setdefault(contestant.name, []).append(answer.peak_bytes / 2**20)
                    cost = self.size.start_cost + EPOCHS * EPOCH * self.size.step_cost
                    line = f"{self.size}: {contestant.name}, study in {answer.seconds:.1f} s"
                    self.session.spent(cost, f"{line}, last loss {answer.losses[-1]:.3f}")
        self.session.check(str(self.size), agreement.STUDY, curves)
        return seconds

    def _order(self, turn: int) -> list[Contestant]:
        """Returns contestants that have not failed, reversed every other turn, so that drift affects all alike."""
        left = [contestant for contestant in self.contestants if contestant.name not in self.out]
        return left[::-1] if turn % 2 else left

    def _task(self, contestant: Contestant) -> str:
        return replace(self.problem, options=contestant.options).to_json()

    def _train(self, contestant: Contestant, questions: Sequence[int]) -> list[Answer]:
        """Returns the answers of a fresh process; none if it fails."""
        worker = self.session.start(contestant, self._task(contestant), str(self.size))
        if worker is None:
            self.out.add(contestant.name)
            return []
        with worker:
            answers = []
            for steps in questions:
                answer = self._ask(worker, steps)
                if answer is None:
                    return []
                answers.append(answer)
            return answers

    def _ask(self, worker: Worker, steps: int) -> Answer | None:
        answer = self.session.ask(worker, steps, str(self.size))
        if answer is None:
            self.out.add(worker.contestant.name)
            return None
        self.versions[worker.contestant.name] = answer.versions
        return answer

    def _rows(self, measure: str, unit: str, values: dict[str, list[float]]) -> list[Row]:
        rows = self.session.rows(replace(self.template, measure=measure, unit=unit), values, self.by_name)
        return [replace(row, versions=self.versions[row.contestant]) for row in rows]

    def _with_roof(self, row: Row) -> Row:
        if self.roof is None:
            return row
        work = row.median * problem.flops(row.depth, row.width)
        return replace(
            row,
            of_peak=work / self.roof.flops,
            of_small_products=work / self.roof.small_flops,
            of_bandwidth=row.median * problem.traffic(row.depth, row.width) / self.roof.bandwidth,
        )

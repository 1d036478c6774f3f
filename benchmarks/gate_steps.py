"""Time of a training step of the nets that the study `conv-gate` compares in equal training time."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks import data, roster
from benchmarks.controller import Contestant
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row
from pipelines.studies.papers.conv_gate.nets import NETS, arm

# Executions per turn, and approximate seconds per start and per execution.
ROUNDS, EXECUTIONS = 9, 20
START_COST, EXECUTION_COST = 25.0, 0.25


def run(session: Session) -> Sequence[Row]:
    """Measures all nets in turns, with data and augmentation as in a run; if quick, one net on digits, for a moment."""
    names, rounds, executions = _scope(session)
    source = "mnist_5k" if session.quick else "cifar10"
    if not session.quick and not data.is_prepared(source):
        session.note("gate_steps: skipped, CIFAR-10 is not prepared: highway data prepare cifar10")
        return []
    contestants = {
        name: Contestant(name, "study_net", "project", variables=roster.TENSORFLOW, ours=name != next(iter(NETS)))
        for name in names
    }
    found: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as running:
        workers = {}
        for name, contestant in contestants.items():
            worker = session.start(contestant, f"{name} on {source}", "gate_steps")
            if worker and session.ask(running.enter_context(worker), 1, "gate_steps"):
                workers[name] = worker
            session.spent(START_COST, f"gate_steps: {name} is compiled")
        for turn in range(rounds):
            for name in list(workers)[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                answer = session.ask(workers[name], executions, "gate_steps")
                if answer:
                    found[name].append(1000 * answer.more["step"])
                    line = f"gate_steps: round {turn + 1}, {name} {found[name][-1]:.4g} ms"
                    session.spent(executions * EXECUTION_COST, line)
    batch = arm(NETS[names[0]], NETS[names[0]].rate).config.batch_size
    precision = "mixed_bfloat16" if session.has_bfloat16 else "float32"
    template = Row("gate_steps", "training step", "ms", batch=batch, precision=precision, data=source)
    return session.rows(template, found, contestants)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    names, rounds, executions = _scope(session)
    return len(names) * (START_COST + rounds * executions * EXECUTION_COST)


BENCHMARK = Benchmark("gate_steps", "How long do training steps take with and without gates?", run, cost)


def _scope(session: Session) -> tuple[list[str], int, int]:
    """Returns names of nets, rounds, and executions per turn."""
    return (list(NETS)[:1], 1, 1) if session.quick else (list(NETS), ROUNDS, EXECUTIONS)

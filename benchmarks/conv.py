"""Training speed of CIFAR nets in float32 and bfloat16, on the CPU and on a GPU: the paper's, and the modern one."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from benchmarks import agreement, conv_problem, data, problem, roster
from benchmarks.controller import Answer, Contestant, Worker
from benchmarks.conv_problem import ConvProblem, NetDefinition, Precision
from benchmarks.session import PAUSE, Benchmark, Roof, Session
from benchmarks.table import Row

# Approximate seconds per start, first step included, and per image.
START_COST, IMAGE_COST = 15.0, 0.012
PRECISIONS: tuple[Precision, ...] = ("float32", "mixed_bfloat16")
ROUNDS, STEPS = 9, 2
STEADY = "steady state"
# Training images. Epochs in which `cifar10_modern` passes an accuracy (docs/log.md, nets past the paper): 20 gave
# 93.50% of 5,000 held-out images (n = 1, learning rate 0.2), and fewer were not tried; the recipe's 60 gave
# 94.53% ± 0.11 of the test images (n = 3).
IMAGES = 50_000
EPOCHS = {"92.31%": 20, "94%": 60}


def run(session: Session) -> list[Row]:
    """Measures the paper's net in both precisions on the CPU; if quick, only float32."""
    return _on_cpu(session, roster.CONV, "cifar10_19", "conv")


def run_modern(session: Session) -> list[Row]:
    """Measures the net of `cifar10_modern` in the same way, and projects the time to two accuracies."""
    rows = _on_cpu(session, roster.MODERN, "cifar10_modern", "modern")
    return rows + projected(rows)


def _on_cpu(session: Session, contestants: Sequence[Contestant], recipe: str, section: str) -> list[Row]:
    if session.quick:
        return measure(session, roster.CONV_QUICK, ("float32",), recipe, section, batch=8, rounds=1, steps=1)
    precisions, batch = _precisions(session), conv_problem.NETS[recipe].batch
    if precisions != PRECISIONS:
        session.note(f"{section}: mixed_bfloat16 is skipped, this CPU has no instructions for it")
    return measure(session, contestants, precisions, recipe, section, batch=batch, rounds=ROUNDS, steps=STEPS)


def _precisions(session: Session) -> tuple[Precision, ...]:
    return PRECISIONS if session.has_bfloat16 else ("float32",)


def projected(rows: Sequence[Row]) -> list[Row]:
    """Projects the seconds in which each contestant would pass the accuracies of `EPOCHS`, validation not included."""
    return [
        replace(
            row,
            measure=f"projected time to {accuracy}",
            unit="s",
            median=epochs * IMAGES / row.median,
            low=epochs * IMAGES / row.high,
            high=epochs * IMAGES / row.low,
            of_peak=None,
        )
        for accuracy, epochs in EPOCHS.items()
        for row in rows
        if row.measure == STEADY
    ]


def cost(session: Session, contestants: Sequence[Contestant], recipe: str) -> float:
    """Estimates how many seconds a benchmark takes on the CPU."""
    if session.quick:
        return (START_COST + 3 * 8 * IMAGE_COST) * len(roster.CONV_QUICK)
    images = (2 + ROUNDS * STEPS) * conv_problem.NETS[recipe].batch
    return (START_COST + images * IMAGE_COST) * len(contestants) * len(_precisions(session))


def run_on_gpu(session: Session) -> list[Row]:
    """Measures both precisions on the first GPU; without one, leaves a note."""
    name = gpu()
    if name is None:
        session.note("gpu: skipped, there is no NVIDIA GPU here (nvidia-smi lists none)")
        return []
    batch = conv_problem.PAPER.batch
    rows = measure(session, roster.GPU, PRECISIONS, "cifar10_19", "gpu", batch=batch, rounds=ROUNDS, steps=100)
    return [replace(row, machine=f"{name}; {row.machine}") for row in rows]


def gpu() -> str | None:
    """Returns the name of the first NVIDIA GPU, or None."""
    if shutil.which("nvidia-smi") is None:
        return None
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = listed.stdout.strip().splitlines()
    return lines[0].split(" (UUID")[0] if listed.returncode == 0 and lines else None


BENCHMARK = Benchmark(
    "conv",
    "How fast does the 19-layer CIFAR net train?",
    run,
    partial(cost, contestants=roster.CONV, recipe="cifar10_19"),
    uses_roof=True,
)
ON_GPU = Benchmark("gpu", "How fast does it train on a GPU?", run_on_gpu, lambda _: 0.0)
MODERN = Benchmark(
    "modern",
    "How fast does the modern CIFAR net train, and pass the paper's accuracy?",
    run_modern,
    partial(cost, contestants=roster.MODERN, recipe="cifar10_modern"),
    uses_roof=True,
)


def measure(
    session: Session,
    contestants: Sequence[Contestant],
    precisions: Sequence[Precision],
    recipe: str,
    section: str,
    *,
    batch: int,
    rounds: int,
    steps: int,
) -> list[Row]:
    """Measures contestants in turns, for each precision.

    Args:
        session: session of this run.
        contestants: contestants to measure; their losses are compared with the first one's.
        precisions: Keras policies.
        recipe: recipe of the net, in `conv_problem.NETS`.
        section: name for the rows.
        batch: images per step.
        rounds: turns of each contestant, after its first step and a second one to warm up.
        steps: steps per turn.

    Returns:
        The rows.
    """
    name, arrays = conv_problem.cifar(recipe, batch, not session.quick and data.is_prepared("cifar10"))
    batches, weights = session.folder / f"{recipe}.npz", session.folder / f"{recipe}_weights.npz"
    task = ConvProblem(str(batches), str(weights), recipe, precisions[0])
    problem.write(batches, arrays)
    from benchmarks import conv_net

    problem.write(weights, conv_problem.weights_of(conv_net.build(recipe, "float32")))
    rows: list[Row] = []
    for precision in precisions:
        template = Row(section, STEADY, "images/s", batch=batch, precision=precision, data=name)
        task = replace(task, precision=precision)
        measured = _alternate(session, contestants, task, template, rounds=rounds, steps=steps)
        rows += [_with_roof(row, task.net, session.roof if section != "gpu" else None) for row in measured]
    return rows


def _alternate(
    session: Session,
    contestants: Sequence[Contestant],
    task: ConvProblem,
    template: Row,
    *,
    rounds: int,
    steps: int,
) -> list[Row]:
    where, batch = f"{template.section} {task.precision}", template.batch
    workers: dict[str, Worker] = {}
    speeds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    peak: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    curves: dict[str, list[float]] = {}
    versions: dict[str, str] = {}
    with ExitStack() as running:
        for contestant in contestants:
            worker = session.start(contestant, replace(task, options=contestant.options).to_json(), where)
            if worker:
                workers[contestant.name] = running.enter_context(worker)

        def warm_up(worker: Worker) -> list[Answer | None]:
            return [session.ask(worker, 1, where), session.ask(worker, 1, where)]

        # Compilers for a GPU run on the host, which has cores for all of them.
        with ThreadPoolExecutor(len(contestants) if template.section == "gpu" else 1) as pool:
            for name, (first, second) in zip(workers, pool.map(warm_up, workers.values()), strict=True):
                if first and second:
                    curves[name] = [first.losses[0], second.losses[0]]
                    line = f"{where}: {name}, first step after {first.seconds:.1f} s"
                    session.spent(START_COST + 2 * batch * IMAGE_COST, line)
        for turn in range(rounds):
            for name in list(curves)[:: -1 if turn % 2 else 1]:
                time.sleep(PAUSE)
                answer = session.ask(workers[name], steps, where)
                if answer:
                    speeds[name].append(steps * batch / answer.seconds)
                    peak[name] = [answer.peak_bytes / 2**20]
                    versions[name] = answer.versions
                    line = f"{where}: round {turn + 1}, {name} {speeds[name][-1]:.4g} images/s"
                    session.spent(steps * batch * IMAGE_COST, line)
    session.check(where, agreement.CONV[task.precision], curves)
    by_name = {contestant.name: contestant for contestant in contestants}
    rows = session.rows(template, speeds, by_name)
    rows += session.rows(replace(template, measure="peak memory", unit="MiB"), peak, by_name)
    return [replace(row, versions=versions[row.contestant]) for row in rows]


def _with_roof(row: Row, net: NetDefinition, roof: Roof | None) -> Row:
    if row.measure != STEADY:
        return row
    peak = roof and (roof.flops if row.precision == "float32" else roof.bfloat16_flops)
    return replace(row, of_peak=row.median * conv_problem.flops(net, 1) / peak) if peak else row

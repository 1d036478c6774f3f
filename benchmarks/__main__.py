"""`python -m benchmarks`: measures ours and the peers, writes tables and figures."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import (
    checkpoints,
    conv,
    data,
    dense,
    gpu,
    inputs,
    kill,
    lesions,
    many,
    memory,
    problem,
    roof,
    roster,
    serving,
    summary,
    table,
    tune,
)
from benchmarks.controller import ROOT, Contestant
from benchmarks.roof import Roof
from benchmarks.session import Session
from benchmarks.table import Row
from pipelines.core import environment, frameworks

# Gives rows as they are measured.
Section = Callable[[Roof | None], Iterable[list[Row]]]

SECTIONS = ("dense", "conv", "input", "many", "memory", "serving", "tune", "checkpoints", "lesions", "kill", "gpu")
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"


def main(words: Sequence[str] | None = None) -> int:
    """Runs the benchmarks.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status: 1 if a contestant failed, or learned something else; 0 for those that are skipped.
    """
    asked = _parser().parse_args(words)
    session = Session(
        folder=Path(), results=asked.to, quick=asked.quick, command=environment.command(), machine=_machine()
    )
    session.say(f"{session.machine}\n{session.command}")
    frameworks.load()
    with tempfile.TemporaryDirectory() as folder:
        session.folder = Path(folder)
        plans = {name: _plan(session, name, asked.sizes, asked.models) for name in asked.sections or SECTIONS}
        session.expect(roof.cost(session) + sum(cost for cost, _ in plans.values()))
        found, rows = roof.measure(session)
        _publish("roof", rows, asked.to)
        sys.stdout.write(summary.text(rows))
        for name, (_, run) in plans.items():
            measured: list[Row] = []
            for part in run(found):
                measured += part
                _publish(name, measured, asked.to, keep=bool(asked.sizes))
                sys.stdout.write(summary.text(part))
                sys.stdout.flush()
    notes = [*session.skipped, *session.failed, *session.disagreements]
    sys.stdout.write("".join(f"{note}\n" for note in notes))
    if asked.publish:
        _copy(asked.to)
    return 1 if session.failed or session.disagreements else 0


def _copy(results: Path) -> None:
    for folder, files, prefix in ((DOCS / "benchmarks", "*.csv", ""), (DOCS / "images", "*.png", "benchmark_")):
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(results.glob(files)):
            shutil.copy(path, folder / f"{prefix}{path.name}")


def _publish(section: str, rows: Sequence[Row], folder: Path, *, keep: bool = False) -> None:
    if rows:
        if keep:
            measured = {(row.depth, row.width) for row in rows}
            before = table.read(folder / f"{section}.csv")
            rows = [*(row for row in before if (row.depth, row.width) not in measured), *rows]
            rows = sorted(rows, key=lambda row: (row.depth, row.width))
        table.write(folder / f"{section}.csv", rows)
        summary.draw(section, rows, folder)


def _plan(session: Session, name: str, sizes: Sequence[str] | None, models: Sequence[Path]) -> tuple[float, Section]:
    """About the seconds of a section, and what runs it."""
    if name == "dense":
        wanted = [size for size in dense.FULL if sizes and size.label in sizes]
        chosen = wanted or (dense.QUICK if session.quick else dense.FULL)
        contestants = roster.DENSE_QUICK if session.quick else roster.DENSE
        return dense.cost(contestants, chosen), lambda found: _dense(session, contestants, chosen, found)
    others: dict[str, tuple[float, Section]] = {
        "conv": (conv.cost(session), lambda found: [conv.run(session, found)]),
        "input": (inputs.cost(session), lambda _: [inputs.run(session)]),
        "many": (many.cost(session, models), lambda _: [many.run(session, models)]),
        "memory": (memory.cost(session, models), lambda _: [memory.run(session, models)]),
        "serving": (serving.cost(session), lambda _: [serving.run(session)]),
        "tune": (tune.cost(session), lambda _: [tune.run(session)]),
        "checkpoints": (checkpoints.cost(session), lambda _: [checkpoints.run(session)]),
        "lesions": (lesions.cost(session), lambda _: [lesions.run(session)]),
        "kill": (kill.cost(session), lambda _: [kill.run(session)]),
        "gpu": (0.0, lambda _: [gpu.run(session)]),
    }
    return others[name]


def _dense(
    session: Session, contestants: Sequence[Contestant], sizes: Sequence[dense.Size], found: Roof | None
) -> Iterable[list[Row]]:
    name, images, labels = data.mnist()
    problem.write(session.folder / "batches.npz", problem.batches(images, labels))
    return dense.run(session, contestants, sizes, name, found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION", help=f"{', '.join(SECTIONS)}; none is all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="about a minute: whether everything runs, no figures to quote"
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=[size.label for size in dense.FULL],
        metavar="SIZE",
        help="only these of the dense section, as 30x50 for depth 30, width 50; its table keeps the others that it has",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        type=Path,
        default=(),
        metavar="MODEL",
        help="versions of digit models, for the sections many and memory",
    )
    parser.add_argument("--to", type=Path, default=RESULTS, help="folder for tables and figures")
    parser.add_argument("--publish", action="store_true", help="also copy them to docs/benchmarks and docs/images")
    return parser


def _machine() -> str:
    model, features = environment.cpu()
    return f"{model}, {environment.cores()} cores, {' '.join(features)}"


if __name__ == "__main__":
    sys.exit(main())

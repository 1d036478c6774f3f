"""`python -m benchmarks [NAME ...] [--quick]`: measures this project and its peers, writes tables and figures."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    batch_inference,
    cluster,
    conv,
    cores,
    decoding,
    dense,
    documents,
    faults,
    gate_steps,
    health,
    inputs,
    lesions,
    memory,
    own_images,
    photographs,
    redrawn_digits,
    roof,
    same_answers,
    serving,
    summary,
    table,
    tune,
)
from benchmarks.controller import ROOT
from benchmarks.session import Benchmark, Session
from benchmarks.table import Row
from pipelines.core import environment, frameworks

BENCHMARKS: tuple[Benchmark, ...] = (
    roof.BENCHMARK,
    dense.BENCHMARK,
    dense.BY_WIDTH,
    conv.BENCHMARK,
    conv.ON_GPU,
    conv.MODERN,
    gate_steps.BENCHMARK,
    inputs.BENCHMARK,
    lesions.BENCHMARK,
    tune.BENCHMARK,
    own_images.BENCHMARK,
    serving.BENCHMARK,
    cores.BENCHMARK,
    health.BENCHMARK,
    faults.BENCHMARK,
    memory.BENCHMARK,
    decoding.BENCHMARK,
    batch_inference.BENCHMARK,
    cluster.BENCHMARK,
    redrawn_digits.BENCHMARK,
    photographs.BENCHMARK,
    same_answers.BENCHMARK,
)
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
DOCUMENTS = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))


def main(words: Sequence[str] | None = None) -> int:
    """Runs the benchmarks.

    Args:
        words: command-line arguments; None uses those of this process.

    Returns:
        The exit status: 1 if a contestant failed or its results disagree, else 0, even if some were skipped.
    """
    asked = _parser().parse_args(words)
    session = Session(Path(), RESULTS, asked.quick, environment.command(), _machine())
    if asked.list:
        for one in BENCHMARKS:
            sys.stdout.write(f"{one.name:16} {one.cost(session) / 60:4.0f} min  {one.question}\n")
        return 0
    chosen = [one for one in BENCHMARKS if not asked.names or one.name in asked.names]
    if any(one.uses_roof for one in chosen) and roof.BENCHMARK not in chosen:
        chosen.insert(0, roof.BENCHMARK)
    session.say(f"{session.machine}\n{session.command}")
    frameworks.load()
    with tempfile.TemporaryDirectory() as folder:
        session.folder = Path(folder)
        session.expect(sum(one.cost(session) for one in chosen))
        for one in chosen:
            _run(one, session)
    notes = [*session.skipped, *session.failed, *session.disagreements]
    sys.stdout.write("".join(f"{note}\n" for note in notes))
    if asked.publish:
        _publish()
    return 1 if session.failed or session.disagreements else 0


def _run(benchmark: Benchmark, session: Session) -> None:
    rows: list[Row] = []
    try:
        rows.extend(benchmark.run(session))
    finally:
        # An interrupted benchmark keeps the rows that it completed.
        if rows:
            table.write(session.results / f"{benchmark.name}.csv", rows)
            summary.draw(benchmark.name, rows, session.results)
            sys.stdout.write(summary.text(rows))
            sys.stdout.flush()


def _publish() -> None:
    for folder, files, prefix in ((DOCS / "benchmarks", "*.csv", ""), (DOCS / "images", "*.png", "benchmark_")):
        for path in sorted(RESULTS.glob(files)):
            shutil.copy(path, folder / f"{prefix}{path.name}")
    documents.update(DOCUMENTS, DOCS / "benchmarks")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [one.name for one in BENCHMARKS]
    parser.add_argument(
        "names", nargs="*", choices=[[], *names], metavar="NAME", help=f"{', '.join(names)}; default all"
    )
    parser.add_argument("--list", action="store_true", help="print each benchmark with its question and duration")
    parser.add_argument("--quick", action="store_true", help="show that everything runs; the figures mean nothing")
    parser.add_argument("--publish", action="store_true", help="copy all results to docs, and update their tables")
    return parser


def _machine() -> str:
    model, features = environment.cpu()
    return f"{model}, {environment.cores()} cores, {' '.join(features)}"


if __name__ == "__main__":
    sys.exit(main())

"""Many pictures: memory of `highway predict --out` over a million of them."""

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import data, many
from benchmarks.controller import ROOT
from benchmarks.session import Session
from benchmarks.table import Row
from pipelines.core.plotting import STYLE

MILLION, QUICK_MILLION = 1_000_000, 10_000
LINE = re.compile(r"([\d,]+) (?:of [\d,]+ )?images")


def run(session: Session, models: Sequence[Path]) -> list[Row]:
    """Writes resident memory over pictures, as CSV and figure.

    Args:
        session: of this run.
        models: version folders of digit models, of which the first is used.

    Returns:
        No rows: there is nobody to compare with.
    """
    if not models:
        session.note("memory: skipped, name a model version of digits with --models models/digits/1")
        return []
    count = QUICK_MILLION if session.quick else MILLION
    small = [many.encoded(image, 28, "PNG") for image in data.mnist(many.DISTINCT)[1][..., 0]]
    pictures, out = session.folder / "million.tar", session.folder / "million.parquet"
    many.pack(pictures, small, count)
    words = [sys.executable, "-m", "pipelines", "predict", str(models[0]), str(pictures), "--out", str(out)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        points = list(_sampled(process.pid, process.stderr))
    if process.returncode:
        session.failed.append(f"memory: highway predict ended with status {process.returncode}")
        return []
    session.results.mkdir(parents=True, exist_ok=True)
    with (session.results / "many_memory.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("pictures", "resident_mib"), *points])
    draw(points, session.results / "many_memory.png", session.machine)
    return []


def cost(session: Session, models: Sequence[Path]) -> float:
    """About the seconds that `run` takes."""
    return 0.0 if not models else 20.0 if session.quick else 900.0


def _sampled(pid: int, lines: Iterable[str]) -> Iterator[tuple[int, float]]:
    """Pictures that are done and MiB that are resident, each time that a line tells of a part."""
    for line in lines:
        if told := LINE.match(line):
            status = Path(f"/proc/{pid}/status").read_text()
            resident = re.search(r"VmRSS:\s+(\d+) kB", status)
            if resident:
                yield int(told[1].replace(",", "")), int(resident[1]) / 1024


def draw(points: Sequence[tuple[int, float]], path: Path, machine: str) -> None:
    """Draws memory over pictures.

    Args:
        points: pictures, MiB.
        path: of the figure.
        machine: for its title.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), "o-", ms=3, color="#D55E00")
        axes.set_ylim(0, 1.15 * max(resident for _, resident in points))
        axes.set_xlabel("pictures predicted")
        axes.set_ylabel("resident memory (MiB)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.suptitle(f"highway predict --out, 28 x 28 PNG files in a tar file\n{machine}", fontsize=9)
        figure.savefig(path, dpi=120)

"""The page of a study, with tables, figures and provenance, and its results.csv."""

import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipelines.core import environment, markdown
from pipelines.core.durations import clock
from pipelines.core.files import csv_text, write_text
from pipelines.core.run import Code, Run
from pipelines.studies.framework.figures import FigureFile, Figures
from pipelines.studies.framework.study import Found, Study
from pipelines.studies.framework.tables import MISSING, Table

FOLDERS = ("--to", "--data-dir")
"""Options of `highway reproduce` that name a folder."""


def write(folder: Path, study: Study[Found], results: Found, label: str) -> None:
    """Writes results.csv, the figures, and README.md last.

    Args:
        folder: folder of the study.
        study: the study that was run.
        results: results of all its runs.
        label: label for every table and figure; empty if the study was run in full.
    """
    write_text(folder / "results.csv", table(results.rows(folder), label))
    figures = Figures(folder / "figures", label)
    study.draw(results, figures)
    write_text(folder / "README.md", text(study, results, figures.files, label))


def table(rows: Sequence[Mapping[str, str]], label: str) -> str:
    """The text of results.csv: one row per run, with the label of a short schedule in each."""
    marked = {"schedule": label} if label else {}
    return csv_text([[*rows[0], *marked], *([*(row[name] for name in rows[0]), *marked.values()] for row in rows)])


def text(study: Study[Found], results: Found, figures: Iterable[FigureFile], label: str) -> str:
    """The text of README.md."""
    marked = f" ({label})" if label else ""
    counts = {arm: len(results.of(arm)) for arm in study.arms}
    left_out = [arm for arm, count in counts.items() if not count]
    fewer = [f"{arm} ({count})" for arm, count in counts.items() if 0 < count < max(counts.values())]
    # The trials of a search may fail; its tables count them.
    diverged = [] if study.search else [run.path.name for run in results.runs if run.record.state == "diverged"]
    parts = [
        f"# {study.title}",
        *([f"**{label[0].upper()}{label[1:]}.** {_reservation(label)}"] if label else []),
        f"{study.asks[0].upper()}{study.asks[1:]} Source: {study.source}.",
        *([f"**Not run: {', '.join(left_out)}.** {_ABSENCE}"] if left_out else []),
        *([f"**Fewer runs of {', '.join(fewer)}** than of the other nets."] if fewer and not study.search else []),
        *([f"**Diverged: {', '.join(diverged)}.** {_SURVIVORS}"] if diverged else []),
    ]
    tables = study.tables(results)
    for each in tables:
        parts += [f"## {each.title}", *_shown(each, marked)]
    if not tables:
        parts.append("Too few runs for a table.")
    for figure in figures:
        caption = f"{figure.caption}{marked}".strip()
        image = f"![{figure.title}](figures/{figure.file})"
        parts += [f"## {figure.title}", image, *([f"*{caption}*"] if caption else [])]
    parts += [
        "## How it was made",
        markdown.table(("", ""), _made(study.name, results.runs)),
        "Every run: [results.csv](results.csv).",
    ]
    parts += ["## What differs from the source", "\n".join(f"- {difference}" for difference in study.differs)]
    return markdown.wrapped("\n\n".join(parts)) + "\n"


_ABSENCE = f"The tables show dashes ({MISSING}) for these nets, or omit them."
_SURVIVORS = "Means and medians in the tables are over the other runs."


def _reservation(label: str) -> str:
    return (
        "These are not the results of the study."
        if label.startswith("short schedule")
        else "Fewer runs than the study defines."
    )


def _shown(each: Table, marked: str) -> list[str]:
    note = f"{each.note}{marked}".strip()
    return [markdown.table(each.head, each.rows), *([f"*{note[0].upper()}{note[1:]}.*"] if note else [])]


def _made(name: str, runs: Sequence[Run]) -> list[tuple[str, str]]:
    records = [run.record for run in runs]
    return [
        ("study", name),
        ("command", _once(f"`{repeatable(record.command)}`" for record in records)),
        ("commit", _once(_commit(run) for run in runs)),
        ("seeds", numbered(sorted({run.config.seed for run in runs}))),
        ("hardware", _once(_hardware(run) for run in runs)),
        ("wall time", _time([record.seconds for record in records])),
        ("versions", _once(_versions(run) for run in runs)),
        ("precision", _once(record.precision.policy for record in records)),
        ("page made by", f"`{repeatable(environment.command())}` at {_code(environment.code())}"),
    ]


def repeatable(command: str) -> str:
    """Removes the folders of this machine from a command.

    Args:
        command: command as recorded in a run.

    Example:
        repeatable("highway reproduce bias --to ~/bias --seeds 1")  # "highway reproduce bias --seeds 1"
    """
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        if word in FOLDERS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in FOLDERS)):
            kept.append(word)
    return shlex.join(kept)


def numbered(numbers: Sequence[int]) -> str:
    """Lists whole numbers in ascending order, shortening a gapless series of four or more to its first and last.

    Example:
        numbered(range(36))  # "0 to 35"
    """
    gapless = numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]} to {numbers[-1]}" if gapless and len(numbers) > 3 else ", ".join(map(str, numbers))


def _time(seconds: list[float]) -> str:
    if len(seconds) == 1:
        return f"{clock(seconds[0])} of training and validation"
    ends = f"{clock(min(seconds))} to {clock(max(seconds))}, median {clock(statistics.median(seconds))}"
    return f"{clock(sum(seconds))} of training and validation, one run after another; per run {ends}"


def _once(texts: Iterable[str]) -> str:
    """Joins the distinct texts, in order of first appearance."""
    return "; ".join(dict.fromkeys(texts))


def _commit(run: Run) -> str:
    return _code(run.record.code)


def _code(code: Code | None) -> str:
    return f"{code.commit}{' with changes' if code.dirty else ''}" if code else "not a checkout"


def _hardware(run: Run) -> str:
    machine = run.record.machine
    cores = f"{machine.cores} {'core' if machine.cores == 1 else 'cores'} of {machine.cpu}"
    features = f" ({' '.join(machine.cpu_features)})" if machine.cpu_features else ""
    return f"{', '.join(machine.accelerators)} and {cores}{features}" if machine.accelerators else f"{cores}{features}"


def _versions(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.record.versions.items())
    return f"{versions}; backend {run.record.backend}"

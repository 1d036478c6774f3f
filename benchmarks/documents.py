"""Tables of the documents that are made from published results.

A comment such as `<!-- table: dense steps -->` in a document marks the table after it, and `python -m benchmarks
--publish` writes that table anew.
"""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from benchmarks import scaling
from benchmarks.table import Record, markdown, number

_MARKED = re.compile(r"(<!-- table: (?P<name>[\w ]+) -->\n\n?)(?P<table>(?:\|.*\n)+)")
_CONNECTIONS = (1, 8, 16, 64)
# Connections at which the fastest server is the one that is shown next to the endpoint, which the tables call `OURS`.
_MANY, OURS = 16, "ours"
# End of the names of measures of how many digits are found.
_ONE = ": found as one digit"
# Start of the names of shares of images that show no class of the net, and get an answer above 90% all the same.
_UNFAMILIAR = "above 90%, "
# The contestants whose ratio to the fastest peer is shown.
_FASTEST = ("ours, TensorFlow", "ours, JAX, one device per core")


def update(documents: Iterable[Path], results: Path) -> None:
    """Writes the marked tables of documents anew.

    Args:
        documents: the documents.
        results: folder of the published tables, a CSV file for each benchmark.
    """
    for path in documents:
        text = path.read_text()
        if (found := with_tables(text, results)) != text:
            path.write_text(found)


def with_tables(text: str, results: Path) -> str:
    """Returns a document with its marked tables made from the results.

    Args:
        text: the document.
        results: folder of the published tables.
    """
    return _MARKED.sub(lambda found: found[1] + "".join(f"{line}\n" for line in table(found["name"], results)), text)


def table(name: str, results: Path) -> list[str]:
    """Returns the lines of a table.

    Args:
        name: name of the table, which starts with that of its benchmark.
        results: folder of the published tables.
    """
    with (results / f"{name.split(maxsplit=1)[0]}.csv").open(newline="") as file:
        return TABLES[name](list(csv.DictReader(file)))


def _steps(rows: Sequence[Record], along: Literal["depth", "width"]) -> list[str]:
    """Training steps per second of each contestant at each depth or width."""
    steady = [row for row in rows if row["measure"] == "steady state"]
    sizes = sorted({int(row[along]) for row in steady})
    medians = {(row["contestant"], int(row[along])): number(row["median"]) for row in steady}
    ratios = {(row["contestant"], int(row[along])): f"{float(row['ratio']):.2f}" for row in steady if row["ratio"]}
    unit = {"depth": "layers", "width": "units of each layer"}[along]
    lines = [[_name(one), *(medians.get((one, size), "") for size in sizes)] for one in _names(steady)]
    lines += [
        [f"*ratio:* {_name(one)} / the fastest peer", *(ratios.get((one, size), "") for size in sizes)]
        for one in _FASTEST
    ]
    return markdown([f"training steps per second, by {unit}", *(f"{size:,}" for size in sizes)], lines)


def _starts(rows: Sequence[Record]) -> list[str]:
    """Seconds to the first step and for a whole study."""
    measures = {"first step": (10, 100, 1000), "study": (10, 30, 50, 100)}
    medians = {
        (row["contestant"], measure, int(row["depth"])): number(row["median"])
        for row in rows
        for measure in measures
        if row["measure"].startswith(measure)
    }
    columns = [(measure, depth) for measure, depths in measures.items() for depth in depths]
    heads = [f"{measure}, {depth:,} layers" for measure, depth in columns]
    names = [one for one in _names(rows) if (one, *columns[0]) in medians]
    lines = [[_name(one), *(medians.get((one, *column), "") for column in columns)] for one in names]
    return markdown(["seconds from the start of the process", *heads], lines)


def _servers(rows: Sequence[Record], prefix: str) -> list[str]:
    """Requests per second and slowest percent of each server, by connections."""
    names = [one for one in _names(rows) if (one, _served(prefix)[0]) in _medians(rows)]
    return _server_table([[_name(one), *_line(rows, one, prefix)] for one in names])


def _fastest_servers(rows: Sequence[Record]) -> list[str]:
    """Requests per second and slowest percent of the endpoint and of the fastest other server, for each workload."""
    lines: list[list[str]] = []
    for workload, prefix in {"digits": "", "photographs": "photographs, "}.items():
        measure = f"{prefix}throughput, {_MANY} connections"
        peers = {
            row["contestant"]: float(row["median"]) for row in rows if row["measure"] == measure and row["ours"] == "no"
        }
        shown = (max(peers, key=lambda one: peers[one]), OURS)
        lines += [[f"{workload}, {_name(name)}", *_line(rows, name, prefix)] for name in shown]
    return _server_table(lines)


def _server_table(lines: Sequence[Sequence[str]]) -> list[str]:
    heads = [f"{count}" for count in _CONNECTIONS]
    return markdown(["", f"requests/s at {heads[0]}", *heads[1:], f"p99 at {heads[0]}, ms", *heads[1:]], lines)


def _line(rows: Sequence[Record], contestant: str, prefix: str) -> list[str]:
    return [_medians(rows).get((contestant, measure), "") for measure in _served(prefix)]


def _served(prefix: str) -> list[str]:
    """Returns the measures of servers with a workload."""
    return [
        f"{prefix}{measure}, {count} connection{'s' * (count > 1)}"
        for measure in ("throughput", "p99")
        for count in _CONNECTIONS
    ]


def _medians(rows: Sequence[Record]) -> dict[tuple[str, str], str]:
    return {(row["contestant"], row["measure"]): number(row["median"]) for row in rows}


def _drawings(rows: Sequence[Record]) -> list[str]:
    """Accuracy on each kind of drawing of a digit, and the share in which exactly one digit is found."""
    shares = _shares(rows)
    lines = [[name, shares[name], shares[found]] for name in shares if (found := f"{name}{_ONE}") in shares]
    return markdown(["images", "accuracy", "found as one digit"], lines)


def _counts(rows: Sequence[Record]) -> list[str]:
    """The share of images without a digit, and of images with several, that are recognized as such."""
    shares = _shares(rows)
    lines = [[name, share] for name, share in shares.items() if f"{name}{_ONE}" not in shares and _ONE not in name]
    return markdown(["images", "share"], lines)


def _shares(rows: Sequence[Record]) -> dict[str, str]:
    return {row["measure"]: f"{float(row['median']):.1f}%" for row in rows}


def _decoding(rows: Sequence[Record]) -> list[str]:
    """Milliseconds that photographs of each format and size take in the endpoint and, for the largest, in Pillow."""
    medians = {(row["contestant"], *row["measure"].split(": ")): number(row["median"]) for row in rows}
    sizes = list(dict.fromkeys(size for _, _, size in medians))
    files = {row["measure"].split(": ")[0]: row["data"] for row in rows if row["measure"].endswith(sizes[-1])}
    lines = [
        [name, *(medians[OURS, name, size] for size in sizes), medians["Pillow", name, sizes[-1]], file]
        for name, file in files.items()
    ]
    return markdown(["milliseconds", *sizes, "Pillow", f"file of {sizes[-1]}"], lines)


def _forms(rows: Sequence[Record], unfamiliar: bool) -> list[str]:
    """Accuracy of each net on each form of its test images, or the share of unfamiliar images with certain answers."""
    rows = [
        {**row, "measure": row["measure"].removeprefix(_UNFAMILIAR)}
        for row in rows
        if row["measure"].startswith(_UNFAMILIAR) == unfamiliar
    ]
    shares = {(row["measure"], row["contestant"]): f"{float(row['median']):.2f}%" for row in rows}
    nets = _names(rows)
    measures = dict.fromkeys(row["measure"] for row in rows)
    lines = [[name, *(shares.get((name, net), "-") for net in nets)] for name in measures]
    return markdown(["images", *(f"`{net}`" for net in nets)], lines)


TABLES: dict[str, Callable[[Sequence[Record]], list[str]]] = {
    "cluster targets": scaling.targets,
    "cluster measured": scaling.measured,
    "cluster training": scaling.training,
    "cluster images": scaling.images,
    "cluster trials": scaling.trials,
    "decoding": _decoding,
    "dense steps": lambda rows: _steps(rows, "depth"),
    "dense starts": _starts,
    "photographs": lambda rows: _forms(rows, unfamiliar=False),
    "photographs unfamiliar": lambda rows: _forms(rows, unfamiliar=True),
    "redrawn_digits drawings": _drawings,
    "redrawn_digits counts": _counts,
    "serving": _fastest_servers,
    "serving digits": lambda rows: _servers(rows, ""),
    "serving photographs": lambda rows: _servers(rows, "photographs, "),
    "wide steps": lambda rows: _steps(rows, "width"),
}


def _names(rows: Iterable[Record]) -> list[str]:
    """Returns the contestants, ours last."""
    names = {row["contestant"]: row["ours"] == "yes" for row in rows}
    return sorted(names, key=lambda name: names[name])


def _name(contestant: str) -> str:
    return "`highway serve`" if contestant == OURS else re.sub("^ours,", "highway-keras,", contestant)

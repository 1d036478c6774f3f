"""Writes the files of an analysis: numbers, figures and a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.analysis import figures, storage, summary
from pipelines.analysis.examples import Part
from pipelines.analysis.measuring import Analysis
from pipelines.analysis.summary import by_layer
from pipelines.core import environment
from pipelines.core.files import csv_text, write_text
from pipelines.core.markdown import table
from pipelines.core.run import Run, Weights

SHOWN = 60  # Rows of the page's table; layers.csv has all.


def write(analysis: Analysis, run: Run, weights: Weights, folder: Path) -> None:
    """Writes layers.csv, arrays.npz, the figures and analysis.md.

    Args:
        analysis: the measurements.
        run: the run.
        weights: the weights that were measured.
        folder: an empty folder.
    """
    rows = list(layers(analysis))
    write_text(folder / "layers.csv", csv_text([rows[0], *(row.values() for row in rows)]))
    np.savez(folder / "arrays.npz", allow_pickle=False, **arrays(analysis))
    figures.draw(analysis, folder / "figures", f"{run.config.recipe} on {analysis.whole.name}, {analysis.whole.split}")
    write_text(folder / "analysis.md", page(analysis, run, weights, rows))


def layers(analysis: Analysis) -> Iterator[dict[str, object]]:
    """Yields one row per layer, with means over units and examples."""
    found, layout = analysis.statistics, analysis.layout
    columns = {
        "bias": by_layer(layout, found.bias),
        "mean_T": by_layer(layout, found.mean),
        "share_below_0.1": by_layer(layout, found.left),
        "share_above_0.9": by_layer(layout, found.right),
    }
    dead = [int(values.sum()) for values in layout.split(found.dead).values()]
    for number, (name, units) in enumerate(zip(layout.layers, layout.units, strict=True)):
        yield {
            "layer": number + 1,
            "name": name,
            "units": units,
            "initial_bias": float(found.initial_bias[number]),
            **{title: _rounded(values[number]) for title, values in columns.items()},
            "dead": dead[number],
            **{f"lesion_{score}": _rounded(values[number]) for score, values in analysis.lesions.scores.items()},
        }


def arrays(analysis: Analysis) -> dict[str, Any]:
    """Returns the contents of arrays.npz; `storage.SHAPES` describes them."""
    found = {
        **storage.of_statistics(analysis.statistics),
        "example_gates": analysis.example_gates,
        "example_outputs": analysis.example_outputs,
        **storage.of_lesions(analysis.lesions),
        "routes": analysis.routes,
    }
    if analysis.unit_lesions:
        found |= storage.of_lesions(analysis.unit_lesions, "unit_lesion")
    if analysis.classes is not None:
        found["route_classes"] = analysis.classes
    return found


def page(analysis: Analysis, run: Run, weights: Weights, rows: Sequence[dict[str, object]]) -> str:
    """Returns the text of analysis.md."""
    lesions = analysis.lesions
    intact = ", ".join(f"{name} {value:.4g}" for name, value in lesions.intact.items())
    code = environment.code()
    commit = f"{code.commit}{' with changes' if code.dirty else ''}" if code else "not a checkout"
    facts = [
        ("run", f"{run.path.resolve().name}, recipe {run.config.recipe}, {weights} weights"),
        ("highway layers", f"{len(analysis.layout.layers)}, with {analysis.layout.gates:,} {analysis.layout.unit}s"),
        ("gates and lesions on", _examples(analysis.whole)),
        ("routes on", _examples(analysis.routed)),
        ("intact net", intact),
        *summary.of_gates(analysis.statistics),
        *summary.of_lesions(lesions),
        *(summary.of_lesions(analysis.unit_lesions, analysis.layout.unit) if analysis.unit_lesions else ()),
        *summary.of_routes(analysis.routes, analysis.classes),
        ("command", f"`{environment.command()}`"),
        ("commit", commit),
    ]
    parts = [
        f"# What the gates of {run.config.recipe} do",
        table(("", ""), facts),
        "`highway_keras.analysis` defines depth by gates (their sum) and by lesions; the definitions are ours.",
    ]
    for heading, name in _figures(analysis):
        parts += [f"## {heading}", f"![{heading}](figures/{name})"]
    parts += ["## The layers", table(tuple(rows[0]), [tuple(map(_cell, row.values())) for row in _chosen(rows)])]
    if len(rows) > SHOWN:
        parts.append(f"The {SHOWN} layers whose lesion costs most; [layers.csv](layers.csv) has all {len(rows)}.")
    made = arrays(analysis)
    names = [(f"`{name}`", shape) for name, shape in storage.SHAPES.items() if name in made]
    parts += ["## The numbers", "[layers.csv](layers.csv) is the table above. [arrays.npz](arrays.npz) holds:"]
    return "\n\n".join([*parts, table(("array", "content"), names)]) + "\n"


def _figures(analysis: Analysis) -> Iterator[tuple[str, str]]:
    yield "Gates: biases, means, and one example", "gates.png"
    yield "How far the gates open", "openness.png"
    if analysis.whole.labels:
        yield "Gates of the classes", "classes.png"
    yield "Layers closed one by one", "lesions.png"
    if analysis.unit_lesions:
        yield f"{analysis.layout.unit.capitalize()}s closed one by one", "units.png"
    yield "The routes of the examples", "routes.png"


def _chosen(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    costly = sorted(rows, key=lambda row: -float(str(row["lesion_loss"])))[:SHOWN]
    return [row for row in rows if row in costly]


def _examples(part: Part) -> str:
    some = "" if part.count == part.of else f" of {part.of:,}, evenly spaced"
    return f"{part.name}, {part.split} split, {part.count:,} examples{some}"


def _rounded(value: float) -> float:
    """Rounds to six significant digits: gates of very deep nets open by less than a millionth."""
    return float(f"{value:.6g}")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""The report of a version: its size, its parity and the next step."""

from pathlib import Path

from pipelines.core.console import next_command
from pipelines.export import forms
from pipelines.export.form import TOLERANCE
from serving import manifest
from serving.measurements import Parity


def report(folder: Path) -> str:
    """Describes a version in a few lines: measurements and the next command."""
    content = manifest.read(folder)
    *others, last = (form.name for form in forms.present(content.files))
    lines = [
        f"{folder}: {', '.join(others)} and {last} of {_net(content)}, {content.model.parameters:,} parameters, "
        f"{sum(file.size for file in content.files.values()) / 1e6:.1f} MB",
        *agreement(content.parity, content),
    ]
    lines += [
        form.describe(section)
        for form in forms.present(content.files)
        if form.describe and (section := getattr(content, form.key))
    ]
    if content.temperature is not None:
        lines.append(f"calibrated: logits are divided by {content.temperature:.3f}")
    lines.append(f"next: {next_command('predict', folder)} {'ROWS.csv' if content.is_table else 'IMAGE.png'}")
    return "\n".join(lines) + "\n"


def _net(content: manifest.Manifest) -> str:
    """Returns what the net is called: its preset, and how many layers were removed from it."""
    name, pruned = str(content.model.preset), content.run.pruned
    if pruned is None:
        return name
    return f"{name} without {len(pruned['removed'])} of {pruned['layers']} highway layers of {pruned['source']}"


def agreement(measured: Parity, content: manifest.Manifest) -> list[str]:
    """Describes how each form differs from the Keras model, one line per form.

    Args:
        measured: the measurements.
        content: the manifest of the version.
    """
    # That of a regression is relative to the spread of the target.
    usual = measured.tolerance if content.labels else TOLERANCE
    rows = [
        (form.name, measured.forms[form.key], _note(form.tolerance, usual))
        for form in forms.FORMS
        if form.key in measured.forms
    ]
    if measured.precision:
        rows.append(("trained in mixed precision", measured.precision, _note(None, usual)))
    examples = "rows" if content.is_table else "images"
    answer = "probability" if content.labels else "value"
    lines = [
        f"parity on {measured.images} {examples} of the {measured.split} split, largest difference of a {answer} "
        f"(tolerance {measured.tolerance:.4g}):"
    ]
    width = max(len(name) for name, _, _ in rows)
    for name, form, note in rows:
        gates = "" if form.gate_means is None else f", gates {form.gate_means:.1e}"
        same = f"  {form.same_label} of {measured.images} labels" if content.labels else ""
        lines.append(f"  {name:<{width}}  {form.max_abs_difference:.1e}{same}{gates}{note}")
    if files := measured.files:
        lines.append(
            f"  image files: {files.max_abs_difference:.1e} (tolerance {files.tolerance:g}), {files.same_label} of "
            f"{files.images} labels, pixels within {files.pixels:g} of 255"
        )
    return lines


def _note(tolerance: float | None, usual: float) -> str:
    if tolerance is None:
        return ", not checked"
    return "" if tolerance == usual else f", tolerance {tolerance:g}"

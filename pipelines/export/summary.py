"""A version of a model in a few lines: what was measured, and what to do with it."""

from pathlib import Path

from serving import manifest


def report(folder: Path) -> str:
    """A few lines on a version: what was measured, and what to do with it."""
    content = manifest.read(folder)
    lines = [
        f"{folder}: SavedModel and ONNX of {content.model.preset}, {content.model.parameters:,} parameters, "
        f"{sum(file.size for file in content.files.values()) / 1e6:.1f} MB",
        *agreement(content.parity),
    ]
    if content.int8:
        one = content.int8
        times = ", ".join(f"{s.float32_ms / s.int8_ms:.2f} times as fast at batch {s.batch}" for s in one.speed)
        lines.append(
            f"int8: {one.int8_accuracy:.2%} of {one.images} images of the {one.split} split right, "
            f"float32 {one.float32_accuracy:.2%}; {times}"
        )
    lines.append(f"next: highway predict {folder} PICTURE.png")
    return "\n".join(lines) + "\n"


def agreement(measured: manifest.Parity) -> list[str]:
    """A line for each form of a model: how far it is from the Keras model."""
    lines = [
        f"parity on {measured.images} images of the {measured.split} split, largest difference of a probability "
        f"({measured.tolerance:g} is let pass):"
    ]
    forms = [("SavedModel", measured.saved_model), ("ONNX Runtime", measured.onnx)]
    if measured.precision:
        forms.append(("trained in mixed precision", measured.precision))
    width = max(len(name) for name, _ in forms)
    for name, form in forms:
        gates = "" if form.gate_means is None else f", gates {form.gate_means:.1e}"
        lines.append(
            f"  {name:<{width}}  {form.max_abs_difference:.1e}  {form.same_label} of {measured.images} labels{gates}"
        )
    if files := measured.files:
        lines.append(
            f"  picture files: {files.max_abs_difference:.1e} ({files.tolerance:g} is let pass), {files.same_label} of "
            f"{files.images} labels, pixels within {files.pixels:g} of 255"
        )
    return lines

"""Parity: compares the exported files, loaded back from disk, with the Keras model on real images or rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.core.errors import UserError
from pipelines.export.form import TOLERANCE, Form, Outputs, Predict
from serving.inputs import INPUT
from serving.manifest import CLASS_ID, GATE_MEANS, LABEL, PROBABILITIES, VALUE, ConversionKind
from serving.measurements import Agreement, Files, Parity

if TYPE_CHECKING:
    from pipelines.export.reference import Reference

# Larger than the tolerance of a form, because two decoders or machines may round a pixel differently by one level,
# which moves a probability by more than that.
FILES_TOLERANCE, PIXEL = 1e-2, 1
IMAGES = 256
# Batch sizes with which a fixed or forgotten batch axis would fail; the last batch has the remaining images.
FIRST_BATCHES = (1, 3)


def compare(
    expected: np.ndarray, labels: Sequence[str], found: Outputs, gate_means: np.ndarray | None, tolerance: float
) -> Agreement:
    """Compares the outputs of a form with the expected ones.

    Args:
        expected: probabilities, float32 `[n, classes]`; or values of a regression, `[n, 1]`.
        labels: names of the classes; none for a regression.
        found: the outputs of a form for the same images.
        gate_means: expected gate means, float32 `[n, layers]`, or None if the form has no such output.
        tolerance: tolerance of a probability; decides which classes are tied.

    Returns:
        The agreement between them.
    """
    means = None if gate_means is None else _furthest(found[GATE_MEANS], gate_means)
    if not labels:
        difference = _furthest(found[VALUE], expected)
        return Agreement(max_abs_difference=difference, same_label=len(expected), ties=0, gate_means=means)
    classes = np.argmax(expected, axis=-1)
    ranked = np.sort(expected, axis=-1)
    # Each of the two nearest probabilities may be off by the tolerance, in opposite directions.
    near = ranked[:, -1] - ranked[:, -2] <= 2 * tolerance if expected.shape[1] > 1 else np.zeros(len(expected), bool)
    names = [label.decode() if isinstance(label, bytes) else label for label in found[LABEL]]
    named = np.array([name == labels[index] for name, index in zip(names, found[CLASS_ID], strict=True)])
    same = (found[CLASS_ID] == classes) & named
    return Agreement(
        max_abs_difference=_furthest(found[PROBABILITIES], expected),
        same_label=int(np.sum(same)),
        ties=int(np.sum(near & named & ~same)),
        gate_means=means,
    )


def of_precision(reference: "Reference", probabilities: np.ndarray, labels: Sequence[str]) -> Agreement:
    """Compares the net, in the precision of its training, with its float32 copy; for information only."""
    if not labels:
        return compare(reference.probabilities, labels, {VALUE: probabilities}, None, TOLERANCE)
    classes = np.argmax(probabilities, axis=-1)
    found = {PROBABILITIES: probabilities, CLASS_ID: classes, LABEL: np.array(labels)[classes]}
    return compare(reference.probabilities, labels, found, None, TOLERANCE)


def measure(
    folder: Path,
    forms: Sequence[Form],
    reference: "Reference",
    *,
    split: str,
    labels: Sequence[str],
    kind: ConversionKind | None,
    precision: Agreement | None,
) -> Parity:
    """Measures the forms of a version against the answers of the Keras model.

    Args:
        folder: the written files.
        forms: forms to open.
        reference: the answers of the Keras model.
        split: split that the images or rows come from.
        labels: names of the classes; none for a regression.
        kind: kind of image; None for rows.
        precision: a comparison made earlier, to be kept.

    Returns:
        The measurements.

    Raises:
        UserError: a form differs by more than its tolerance, or predicts another class where there is no tie.
    """
    images, files = reference.images, reference.files(kind)
    gates = reference.gate_means if reference.gate_means.shape[1] else None
    agreements: dict[str, Agreement] = {}
    from_files: list[Agreement] = []
    pixels = 0.0
    for form in forms:
        predictor = form.load(folder)
        found = _in_batches(predictor.images, images)
        agreements[form.key] = compare(reference.probabilities, labels, found, gates, form.tolerance or TOLERANCE)
        # Nets of the package come without answers for files.
        if predictor.files and len(reference.seen):
            found = predictor.files(files)
            from_files.append(compare(reference.seen_probabilities, labels, found, None, FILES_TOLERANCE))
            if INPUT in found:
                pixels = max(pixels, _furthest(found[INPUT], reference.seen))
    parity = Parity(
        split=split,
        images=len(images),
        batch_sizes=tuple(len(batch) for batch in _batches(images)),
        tolerance=TOLERANCE * reference.unit,
        saved_model=agreements.pop("saved_model", None),
        onnx=agreements.pop("onnx"),
        other_forms=agreements,
        files=_files(from_files, len(files), pixels) if from_files else None,
        precision=precision,
    )
    check(parity, forms, reference.unit, "rows" if reference.is_table else "images")
    return parity


def _files(agreements: Sequence[Agreement], count: int, pixels: float) -> Files:
    """Returns the worst of the measurements on image files."""
    return Files(
        images=count,
        tolerance=FILES_TOLERANCE,
        max_abs_difference=max(agreement.max_abs_difference for agreement in agreements),
        same_label=min(agreement.same_label for agreement in agreements),
        ties=max(agreement.ties for agreement in agreements),
        pixels=pixels,
    )


def check(parity: Parity, forms: Sequence[Form], unit: float = 1.0, examples: str = "images") -> None:
    """Checks measurements against the tolerances of the forms.

    Args:
        parity: the measurements.
        forms: the forms.
        unit: difference of two answers that counts as 1; see `Reference.unit`.
        examples: name of the examples in messages.

    Raises:
        UserError: a tolerance is exceeded; the message names the form.
    """
    for form in forms:
        if form.tolerance is not None:
            where = f"{parity.images} {examples} of the {parity.split} split"
            _check(form.name, parity.forms[form.key], parity.images, form.tolerance, where=where, unit=unit)
    if files := parity.files:
        where = f"{files.images} images of the {parity.split} split"
        _check("path from image files", files, files.images, files.tolerance, where=where)
        if files.pixels > PIXEL:
            raise UserError(
                f"picture.onnx gives the net other pixels than the exporter computed, by {files.pixels:g} of 255 "
                f"(tolerance {PIXEL}). Export the run again; if that does not help, report this."
            )


def _check(name: str, agreement: Agreement, images: int, tolerance: float, *, where: str, unit: float = 1.0) -> None:
    if not passes(agreement, images, tolerance, unit):
        raise UserError(
            f"the exported {name} does not compute what the Keras model computes: on {where}, predictions differ by up "
            f"to {agreement.max_abs_difference:.2g} (tolerance {tolerance * unit:g}) and "
            f"{agreement.same_label + agreement.ties} labels agree. Check the run with `highway evaluate`; if it is "
            "sound, report this."
        )


def passes(agreement: Agreement, images: int, tolerance: float, unit: float = 1.0) -> bool:
    """Returns whether a form may ship: every difference within tolerance, and every label right or tied."""
    return (
        max(agreement.max_abs_difference / unit, agreement.gate_means or 0.0) <= tolerance
        and agreement.same_label + agreement.ties == images
    )


def _furthest(found: np.ndarray, expected: np.ndarray) -> float:
    # np.max keeps NaN, which must fail every comparison, and cannot be stored.
    distance = np.abs(found.astype(np.float64) - expected)
    return float(np.nan_to_num(np.max(distance), nan=np.finfo(np.float64).max))


def _in_batches(predict: Predict, images: np.ndarray) -> Outputs:
    outputs = [predict(batch) for batch in _batches(images)]
    return {name: np.concatenate([batch[name] for batch in outputs]) for name in outputs[0]}


def _batches(images: np.ndarray) -> list[np.ndarray]:
    return [batch for batch in np.split(images, np.cumsum(FIRST_BATCHES)) if len(batch)]

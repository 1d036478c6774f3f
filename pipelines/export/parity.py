"""Do the written files compute what the Keras model computes? Measured on real pictures, from disk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.core.errors import UserError
from pipelines.export.reference import Reference
from serving import pictures
from serving.manifest import (
    CLASS_ID,
    ENCODED,
    GATE_MEANS,
    INPUT,
    LABEL,
    ONNX,
    PICTURE,
    PROBABILITIES,
    RGBA,
    SIGNATURE,
    SIGNATURE_FILES,
    Agreement,
    Files,
    Parity,
    PictureKind,
)  # fmt: skip
from serving.session import open_session

TOLERANCE = 1e-4
# A pixel that two decoders or two machines round differently by one level moves a probability by more than that.
FILES_TOLERANCE, PIXEL = 1e-2, 1
IMAGES = 256
# Batch sizes that a fixed or forgotten batch axis would fail on; what is left of the pictures is the last batch.
FIRST_BATCHES = (1, 3)

Outputs = dict[str, np.ndarray]
# What a form gives for a batch, by the names of the outputs.
Predict = Callable[[np.ndarray], Outputs]


def saved_model_forms(folder: Path) -> tuple[Predict, Predict]:
    """The two signatures of the SavedModel, loaded from disk: of pixels, and of files."""
    loaded = tf.saved_model.load(folder)

    def form(signature: str, name: str) -> Predict:
        def predict(values: np.ndarray) -> Outputs:
            # `loaded` owns the variables: the signature alone does not keep them alive.
            outputs = loaded.signatures[signature](**{name: tf.constant(values)})
            return {key: value.numpy() for key, value in outputs.items()}

        return predict

    return form(SIGNATURE, INPUT), form(SIGNATURE_FILES, ENCODED)


def onnx_form(path: Path) -> Predict:
    """An ONNX file, loaded from disk into ONNX Runtime."""
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]

    def predict(images: np.ndarray) -> Outputs:
        return dict(zip(names, session.run(names, {INPUT: images}), strict=True))

    return predict


def seen_by(folder: Path, files: Sequence[bytes]) -> np.ndarray:
    """What `picture.onnx` makes of picture files, uint8 `[n, height, width, channels]`."""
    session = open_session(folder / PICTURE)
    return np.concatenate([session.run([INPUT], {RGBA: pictures.decode(file, "a file")})[0][None] for file in files])


def compare(
    expected: np.ndarray, labels: Sequence[str], found: Outputs, gate_means: np.ndarray | None, tolerance: float
) -> Agreement:
    """Compares what a form gives with what it should give.

    Args:
        expected: probabilities, float32 `[n, classes]`.
        labels: names of the classes.
        found: the outputs of a form for the same pictures.
        gate_means: float32 `[n, layers]`, or None if the form gives none.
        tolerance: of a probability; decides what a tie is.

    Returns:
        How far they agree.
    """
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
        gate_means=None if gate_means is None else _furthest(found[GATE_MEANS], gate_means),
    )


def of_precision(reference: Reference, probabilities: np.ndarray, labels: Sequence[str]) -> Agreement:
    """How far the net as it was trained, in a narrower precision, is from itself in float32; for information."""
    classes = np.argmax(probabilities, axis=-1)
    found = {PROBABILITIES: probabilities, CLASS_ID: classes, LABEL: np.array(labels)[classes]}
    return compare(reference.probabilities, labels, found, None, TOLERANCE)


def measure(
    folder: Path,
    reference: Reference,
    *,
    split: str,
    labels: Sequence[str],
    kind: PictureKind,
    precision: Agreement | None,
) -> Parity:
    """Measures the files of a version against what the Keras model gave.

    Args:
        folder: the written files.
        reference: what it gave.
        split: where the pictures are from.
        labels: names of the classes.
        kind: of pictures.
        precision: what was measured before, to be kept.

    Returns:
        The measurements.

    Raises:
        UserError: if a form differs by more than `TOLERANCE`, or gives another class where there is no tie.
    """
    images, files = reference.images, reference.files(kind)
    gates = reference.gate_means if reference.gate_means.shape[1] else None
    onnx = onnx_form(folder / ONNX)
    with _full_float32():
        of_pixels, of_files = saved_model_forms(folder)
        answers = {"SavedModel": _in_batches(of_pixels, images), "ONNX model": _in_batches(onnx, images)}
        from_files = of_files(np.array(files, object))
    seen = seen_by(folder, files)
    agreement = {
        name: compare(reference.probabilities, labels, found, gates, TOLERANCE) for name, found in answers.items()
    }
    ways = [
        compare(reference.seen_probabilities, labels, found, None, FILES_TOLERANCE)
        for found in (from_files, onnx(seen))
    ]
    parity = Parity(
        split=split,
        images=len(images),
        batch_sizes=tuple(len(batch) for batch in _batches(images)),
        tolerance=TOLERANCE,
        saved_model=agreement["SavedModel"],
        onnx=agreement["ONNX model"],
        files=Files(
            images=len(files),
            tolerance=FILES_TOLERANCE,
            max_abs_difference=max(way.max_abs_difference for way in ways),
            same_label=min(way.same_label for way in ways),
            ties=max(way.ties for way in ways),
            pixels=_furthest(seen, reference.seen),
        ),
        precision=precision,
    )
    check(parity)
    return parity


def check(parity: Parity) -> None:
    """Whether measurements are good enough to ship.

    Raises:
        UserError: they are not; the message names the form.
    """
    forms = [("SavedModel", parity.saved_model, parity.images, parity.tolerance)]
    forms.append(("ONNX model", parity.onnx, parity.images, parity.tolerance))
    if parity.files:
        forms.append(("way from picture files", parity.files, parity.files.images, parity.files.tolerance))
    for name, agreement, images, tolerance in forms:
        if not passes(agreement, images, tolerance):
            raise UserError(
                f"the exported {name} does not compute what the Keras model computes: on {images} images of the "
                f"{parity.split} split, probabilities differ by up to {agreement.max_abs_difference:.2g} (at most "
                f"{tolerance:g} is let pass) and {agreement.same_label + agreement.ties} labels agree. "
                "Check the run with `highway evaluate`; if it is sound, report this."
            )
    if parity.files and parity.files.pixels > PIXEL:
        raise UserError(
            f"picture.onnx shows the net other pixels than the exporter saw, by {parity.files.pixels:g} of 255 (at "
            f"most {PIXEL} is let pass). Export the run again; if that does not help, report this."
        )


def passes(agreement: Agreement, images: int, tolerance: float) -> bool:
    """Whether a measurement over so many images is good enough to ship."""
    return (
        max(agreement.max_abs_difference, agreement.gate_means or 0.0) <= tolerance
        and agreement.same_label + agreement.ties == images
    )


def _furthest(found: np.ndarray, expected: np.ndarray) -> float:
    # np.max keeps a NaN, which no comparison then lets pass.
    distance = np.abs(found.astype(np.float64) - expected)
    return float(np.nan_to_num(np.max(distance), nan=1.0))


def _in_batches(predict: Predict, images: np.ndarray) -> Outputs:
    answers = [predict(batch) for batch in _batches(images)]
    return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}


def _batches(images: np.ndarray) -> list[np.ndarray]:
    return [batch for batch in np.split(images, np.cumsum(FIRST_BATCHES)) if len(batch)]


@contextmanager
def _full_float32() -> Iterator[None]:
    """Without TensorFloat-32, in which newer GPUs compute float32 products to three digits."""
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(enabled)

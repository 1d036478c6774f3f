"""Do the written files compute what the Keras model computes? Measured on real pictures, from disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipelines.data import preprocess
from pipelines.errors import UserError
from pipelines.exporting.artefacts import SIGNATURE
from serving.manifest import CLASS_ID, INPUT, ONNX, PROBABILITIES, Agreement, Parity
from serving.session import open_session

TOLERANCE = 1e-4
IMAGES = 256
# Batch sizes that a fixed or forgotten batch axis would fail on; what is left of the pictures is the last batch.
FIRST_BATCHES = (1, 3)

# Probabilities [batch, classes] and classes [batch] of uint8 images.
Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Pictures:
    """Real pictures to measure on.

    Args:
        split: where they are from.
        images: uint8 `[n, height, width, channels]`.
    """

    split: str
    images: np.ndarray


def keras_form(model: keras.Model, fitted: preprocess.Fitted) -> Predict:
    """The Keras model itself, called eagerly, not through the function that was exported."""

    def predict(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = model(preprocess.apply(fitted, tf.constant(images)), training=False)
        probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(keras.ops.cast(logits, "float32")))
        return probabilities, np.argmax(probabilities, axis=-1)

    return predict


def saved_model_form(folder: Path) -> Predict:
    """The SavedModel, loaded from disk."""
    loaded = tf.saved_model.load(folder)

    def predict(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # `loaded` owns the variables: the signature alone does not keep them alive.
        outputs = loaded.signatures[SIGNATURE](**{INPUT: tf.constant(images)})
        return outputs[PROBABILITIES].numpy(), outputs[CLASS_ID].numpy()

    return predict


def onnx_form(folder: Path) -> Predict:
    """The ONNX file, loaded from disk into ONNX Runtime."""
    session = open_session(folder / ONNX)

    def predict(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        probabilities, class_id = session.run([PROBABILITIES, CLASS_ID], {INPUT: images})
        return probabilities, class_id

    return predict


def compare(reference: Predict, other: Predict, images: np.ndarray) -> Agreement:
    """Runs two forms of a model on the same pictures.

    Args:
        reference: the form that decides what a tie is.
        other: the form to judge.
        images: uint8 `[n, height, width, channels]`.

    Returns:
        How far they agree, over batches of 1, of 3 and of the rest.
    """
    expected, classes = _in_batches(reference, images)
    found, found_classes = _in_batches(other, images)
    ranked = np.sort(expected, axis=-1)
    # Each of the two nearest probabilities may be off by the tolerance, in opposite directions.
    tie = ranked[:, -1] - ranked[:, -2] <= 2 * TOLERANCE if expected.shape[1] > 1 else np.zeros(len(images), bool)
    # np.max keeps a NaN, which no comparison then lets pass.
    return Agreement(
        max_abs_difference=float(np.nan_to_num(np.max(np.abs(found - expected)), nan=1.0)),
        same_label=int(np.sum(found_classes == classes)),
        ties=int(np.sum(tie & (found_classes != classes))),
    )


def measure(
    folder: Path, model: keras.Model, trained: keras.Model, fitted: preprocess.Fitted, pictures: Pictures
) -> Parity:
    """Measures a written version against its Keras model.

    Args:
        folder: the written files.
        model: the net in float32.
        trained: the net as it was trained.
        fitted: its preprocessing.
        pictures: what to measure on.

    Returns:
        The measurements.

    Raises:
        UserError: if a form differs by more than `TOLERANCE`, or gives another class where there is no tie.
    """
    images, split = pictures.images, pictures.split
    with _full_float32():
        reference = keras_form(model, fitted)
        parity = Parity(
            split=split,
            images=len(images),
            batch_sizes=tuple(len(batch) for batch in _batches(images)),
            tolerance=TOLERANCE,
            saved_model=compare(reference, saved_model_form(folder), images),
            onnx=compare(reference, onnx_form(folder), images),
            precision=compare(reference, keras_form(trained, fitted), images) if _is_mixed(trained) else None,
        )
    for name, agreement in (("SavedModel", parity.saved_model), ("ONNX model", parity.onnx)):
        if not passes(agreement, len(images)):
            raise UserError(
                f"the exported {name} does not compute what the Keras model computes: on {len(images)} images of the "
                f"{split} split, probabilities differ by up to {agreement.max_abs_difference:.2g} (at most "
                f"{TOLERANCE:g} is let pass) and {agreement.same_label + agreement.ties} labels agree. Nothing was "
                "exported. Check the run with `highway evaluate`; if it is sound, report this."
            )
    return parity


def passes(agreement: Agreement, images: int) -> bool:
    """Whether a measurement over so many images is good enough to export."""
    return agreement.max_abs_difference <= TOLERANCE and agreement.same_label + agreement.ties == images


def _is_mixed(model: keras.Model) -> bool:
    # The policy of the model itself is lost when it is loaded from a file; that of its layers is kept.
    return any(layer.compute_dtype != "float32" for layer in model.layers)


def _in_batches(predict: Predict, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probabilities, classes = zip(*(predict(batch) for batch in _batches(images)), strict=True)
    return np.concatenate(probabilities), np.concatenate(classes)


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

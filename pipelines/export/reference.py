"""Images or rows, and the Keras model's answers, stored with a version so that its files can always be verified."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from highway_keras.analysis import GateModel
from pipelines.core.errors import UserError
from pipelines.data import preprocess
from serving.inputs import INPUT
from serving.manifest import GATE_MEANS, PROBABILITIES, REFERENCE, VALUE, ConversionKind
from serving.reference import CLASSES

# Number of images that become files, and by which factor these are larger than the net's input.
FILES, ENLARGED = 32, 3
# Arrays of images.
OF_IMAGES = ("images", "probabilities", "gate_means", "seen", "seen_probabilities")
# Names of the arrays of a table, and of the true values of a regression.
ROWS, TARGETS = "rows", "targets"


@dataclass(frozen=True)
class Reference:
    """Images or rows, and the answers with which every form of a model is compared."""

    images: np.ndarray
    """Real images, uint8 `[n, height, width, channels]`; or rows of a table, float32 `[n, columns]`."""
    probabilities: np.ndarray
    """float32 `[n, classes]`; or the values of a regression, `[n, 1]`."""
    gate_means: np.ndarray
    """float32 `[n, layers]`; no layers if the exported graphs do not return them."""
    seen: np.ndarray
    """The net's inputs for `files()`, uint8 `[files, height, width, channels]`; none for rows."""
    seen_probabilities: np.ndarray
    """float32 `[files, classes]`."""
    spread: float | None = None
    """Standard deviation of the true values of a regression; None for classes."""

    @property
    def is_table(self) -> bool:
        """True for rows, false for images."""
        return self.images.ndim == 2

    @property
    def unit(self) -> float:
        """Difference of two answers that counts as 1: a probability, or the spread of the target of a regression.

        A hundredth of the largest value is added, because float32 has seven digits.
        """
        return 1.0 if self.spread is None else self.spread + 0.01 * float(np.abs(self.probabilities).max())

    def files(self, kind: ConversionKind | None) -> list[bytes]:
        """Returns some of the images as larger PNG files; digits are dark on light, like handwriting. None for rows."""
        if kind is None:
            return []
        return [_file(image, kind) for image in self.images[:FILES]]


@contextmanager
def full_float32() -> Iterator[None]:
    """Turns off TensorFloat-32, in which recent GPUs compute float32 products to three digits."""
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(enabled)


def keras_probabilities(
    model: keras.Model, fitted: preprocess.Fitted, images: np.ndarray, *, multi_label: bool = False
) -> np.ndarray:
    """Calls the Keras model eagerly instead of through the exported function."""
    logits = keras.ops.cast(model(preprocess.apply(fitted, tf.constant(images)), training=False), "float32")
    return keras.ops.convert_to_numpy(keras.ops.sigmoid(logits) if multi_label else keras.ops.softmax(logits))


def keras_values(model: keras.Model, fitted: preprocess.Fitted, rows: np.ndarray) -> np.ndarray:
    """Calls the Keras model of a regression eagerly; returns values in the unit of the target."""
    outputs = model(preprocess.apply(fitted, tf.constant(rows)), training=False)
    return preprocess.in_units(fitted, keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32")))


@full_float32()
def compute(
    model: keras.Model,
    fitted: preprocess.Fitted,
    images: np.ndarray,
    *,
    convert: tf.types.experimental.PolymorphicFunction | None,
    kind: ConversionKind | None,
    gates: bool,
    targets: np.ndarray | None = None,
    multi_label: bool = False,
) -> tuple[Reference, tuple[str, ...]]:
    """Computes the answers of the Keras model.

    Args:
        model: the net in float32.
        fitted: its preprocessing.
        images: real images, uint8 `[n, height, width, channels]`; or rows of a table, float32 `[n, columns]`.
        convert: the result of `pipelines.data.images.conversion.converter`; None for rows.
        kind: the kind that `convert` is for; None for rows.
        gates: whether to read gate means too.
        targets: true values of a regression, float32 `[n, 1]`; None for classes.
        multi_label: whether the probability of each class is independent of the others.

    Returns:
        The reference, and the names of the highway layers in the order of their gate means.
    """
    means = (
        GateModel(model, mean=True).read(preprocess.apply(fitted, tf.constant(images)), len(images)) if gates else {}
    )
    answers = partial(keras_probabilities, multi_label=multi_label) if targets is None else keras_values
    expected, seen = answers(model, fitted, images), images[:0]
    if convert is not None and kind is not None:
        seen = np.stack([convert(_rgba(image, kind))[INPUT] for image in images[:FILES]])
    reference = Reference(
        images=images,
        probabilities=expected,
        gate_means=np.stack([*means.values()], axis=1) if means else np.zeros((len(images), 0), np.float32),
        seen=seen,
        seen_probabilities=answers(model, fitted, seen) if len(seen) else expected[:0],
        spread=None if targets is None else float(targets.std(dtype=float)),
    )
    return reference, tuple(means)


def save(reference: Reference, classes: np.ndarray, folder: Path) -> None:
    """Writes a reference, and the true classes of its images, or targets, into a version's folder."""
    arrays = {name: array for name, array in vars(reference).items() if isinstance(array, np.ndarray)}
    if reference.is_table:
        arrays = {
            ROWS: reference.images,
            PROBABILITIES if reference.spread is None else VALUE: reference.probabilities,
            GATE_MEANS: reference.gate_means,
        }
    truth = {CLASSES if reference.spread is None else TARGETS: classes}
    np.savez_compressed(folder / REFERENCE, allow_pickle=False, **arrays, **truth)


def load(folder: Path) -> Reference:
    """Reads the reference of a version.

    Raises:
        UserError: the version has none, or it is damaged.
    """
    path = folder / REFERENCE
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return _table(arrays) if ROWS in arrays else Reference(**{name: arrays[name] for name in OF_IMAGES})
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {REFERENCE}: versions of that age cannot be verified. Export the run again."
        ) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}). Export the run again.") from None


def _table(arrays: Mapping[str, np.ndarray]) -> Reference:
    rows, expected = arrays[ROWS], arrays[VALUE if VALUE in arrays else PROBABILITIES]
    spread = float(arrays[TARGETS].std(dtype=float)) if VALUE in arrays else None
    return Reference(rows, expected, arrays[GATE_MEANS], rows[:0], expected[:0], spread)


def _enlarged(image: np.ndarray, kind: ConversionKind) -> np.ndarray:
    large = image.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
    return 255 - large if kind == "digit" else large


def _rgba(image: np.ndarray, kind: ConversionKind) -> np.ndarray:
    enlarged = _enlarged(image, kind)
    opaque = np.full((*enlarged.shape[:2], 1), 255, np.uint8)
    return np.concatenate([np.broadcast_to(enlarged, (*enlarged.shape[:2], 3)), opaque], axis=-1)


def _file(image: np.ndarray, kind: ConversionKind) -> bytes:
    enlarged = _enlarged(image, kind)
    file = io.BytesIO()
    Image.fromarray(enlarged[..., 0] if enlarged.shape[-1] == 1 else enlarged).save(file, "PNG")
    return file.getvalue()

"""Images and the Keras model's answers, stored with a version so that its files can be verified at any time."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from highway_keras.analysis import GateModel
from pipelines.core.errors import UserError
from pipelines.data import preprocess
from serving.manifest import INPUT, REFERENCE, ConversionKind
from serving.reference import CLASSES

# Number of images that become files, and by which factor these are larger than the net's input.
FILES, ENLARGED = 32, 3


@dataclass(frozen=True)
class Reference:
    """Images, and the answers with which every form of a model is compared."""

    images: np.ndarray
    """Real images, uint8 `[n, height, width, channels]`."""
    probabilities: np.ndarray
    """float32 `[n, classes]`."""
    gate_means: np.ndarray
    """float32 `[n, layers]`; no layers if the exported graphs do not return them."""
    seen: np.ndarray
    """The net's inputs for `files()`, uint8 `[files, height, width, channels]`."""
    seen_probabilities: np.ndarray
    """float32 `[files, classes]`."""

    def files(self, kind: ConversionKind) -> list[bytes]:
        """Returns some of the images as larger PNG files; digits are dark on light, like handwriting."""
        return [_file(image, kind) for image in self.images[:FILES]]


def keras_probabilities(model: keras.Model, fitted: preprocess.Fitted, images: np.ndarray) -> np.ndarray:
    """Calls the Keras model eagerly instead of through the exported function."""
    logits = model(preprocess.apply(fitted, tf.constant(images)), training=False)
    return keras.ops.convert_to_numpy(keras.ops.softmax(keras.ops.cast(logits, "float32")))


def compute(
    model: keras.Model,
    fitted: preprocess.Fitted,
    images: np.ndarray,
    *,
    convert: tf.types.experimental.PolymorphicFunction,
    kind: ConversionKind,
    gates: bool,
) -> tuple[Reference, tuple[str, ...]]:
    """Computes the answers of the Keras model.

    Args:
        model: the net in float32.
        fitted: its preprocessing.
        images: real images, uint8 `[n, height, width, channels]`.
        convert: the result of `pipelines.data.images.conversion.converter`.
        kind: the kind that `convert` is for.
        gates: whether to read gate means too.

    Returns:
        The reference, and the names of the highway layers in the order of their gate means.
    """
    means = (
        GateModel(model, mean=True).read(preprocess.apply(fitted, tf.constant(images)), len(images)) if gates else {}
    )
    seen = np.stack([convert(_rgba(image, kind))[INPUT] for image in images[:FILES]])
    reference = Reference(
        images=images,
        probabilities=keras_probabilities(model, fitted, images),
        gate_means=np.stack([*means.values()], axis=1) if means else np.zeros((len(images), 0), np.float32),
        seen=seen,
        seen_probabilities=keras_probabilities(model, fitted, seen),
    )
    return reference, tuple(means)


def save(reference: Reference, classes: np.ndarray, folder: Path) -> None:
    """Writes a reference, and the true classes of its images, into a version's folder."""
    np.savez_compressed(folder / REFERENCE, allow_pickle=False, **vars(reference), **{CLASSES: classes})


def load(folder: Path) -> Reference:
    """Reads the reference of a version.

    Raises:
        UserError: the version has none, or it is damaged.
    """
    path = folder / REFERENCE
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return Reference(**{name: arrays[name] for name in Reference.__dataclass_fields__})
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {REFERENCE}: versions of that age cannot be verified. Export the run again."
        ) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}). Export the run again.") from None


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

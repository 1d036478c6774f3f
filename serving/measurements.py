"""Measurements of an export, as the manifest of a version records them: parity of its forms, accuracy, speed."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class ManifestPart(BaseModel):
    """Part of a manifest: immutable, and indifferent to the fields of later programs."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class Agreement(ManifestPart):
    """Comparison of two forms of a model on the same images."""

    max_abs_difference: float
    """Largest absolute difference of two probabilities, or of two values of a regression."""
    same_label: Count
    """Examples for which both predict the same class; all of them for a regression."""
    ties: Count
    """Images with different classes whose two highest probabilities differ by less than twice the tolerance."""
    gate_means: float | None = None
    """Largest absolute difference of a mean gate; null if the graph does not compute gates."""


class Files(Agreement):
    """Image files through both paths: `serving_bytes`, and `picture.onnx` before `model.onnx`."""

    images: Count
    """Number of images."""
    tolerance: float
    """Largest accepted absolute difference of a probability."""
    pixels: float
    """Largest difference of a pixel in the input of the net, of 255."""


class Speed(ManifestPart):
    """Median time of a call in ONNX Runtime with one thread, both nets alternating."""

    batch: Count
    """Images per call."""
    float32_ms: float
    """Milliseconds of `model.onnx`."""
    int8_ms: float
    """Milliseconds of `model.int8.onnx`."""


class Int8(ManifestPart):
    """Accuracy and speed of `model.int8.onnx`, measured at export."""

    calibration: Count
    """Training images that its ranges were calibrated on."""
    split: str
    """Split of the accuracy; never the test split."""
    images: Count
    """Number of images of this split."""
    float32_accuracy: float
    """Accuracy of `model.onnx` on them; the share of all labels that are right if images may have several."""
    int8_accuracy: float
    """Accuracy of `model.int8.onnx` on them, measured alike."""
    same_label: Count
    """Images for which both predict the same class."""
    max_abs_difference: float
    """Largest absolute difference of a probability."""
    speed: tuple[Speed, ...]
    """By batch size."""
    cpu: str
    """Processor of the measurement, with the relevant features."""


class Parity(ManifestPart):
    """Differences between the written files and the Keras model, measured on real images after writing."""

    split: str
    """Split of the training run's data that the images are from; never its test split."""
    images: Count
    """Number of images or rows."""
    batch_sizes: tuple[int, ...]
    """Batch sizes."""
    tolerance: float
    """Largest accepted absolute difference."""
    saved_model: Agreement | None = None
    """SavedModel, loaded back from disk, against the Keras model in float32; null if a version is measured again that
    has none, as the nets of the package; never in a manifest."""
    onnx: Agreement
    """ONNX Runtime, loaded back from disk, against the Keras model in float32."""
    other_forms: dict[str, Agreement] = Field(default={}, exclude_if=lambda forms: not forms)
    """Further forms against the Keras model in float32, by their key; left out of the file if there are none."""
    files: Files | None = None
    """`serving_bytes`, and `picture.onnx` before `model.onnx`, against Keras; null in versions without them."""
    precision: Agreement | None
    """Keras model in its training precision against float32, for information; null if that is float32."""

    @property
    def forms(self) -> dict[str, Agreement]:
        """Every measured form against the Keras model, by its key."""
        found = {"saved_model": self.saved_model, "onnx": self.onnx, **self.other_forms}
        return {key: agreement for key, agreement in found.items() if agreement}

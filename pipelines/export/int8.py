"""`model.int8.onnx`: int8 products, with the measured cost in accuracy and gain in speed."""

import logging
import time
from pathlib import Path

import numpy as np

from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.export.form import Form, OpenedForm, Outputs, Predict, TracedNet
from pipelines.export.onnx_model import predictor
from serving.inputs import INPUT
from serving.manifest import CLASS_ID, INT8, ONNX, PROBABILITIES
from serving.measurements import Int8, Speed

# Number of images for calibration, and the maximum number for measuring accuracy.
CALIBRATION, JUDGED = 512, 10_000
# Images per run, and the batch sizes that are timed.
BATCH = 64
TIMED = (1, 32)
# Seconds of timing for each net at each batch size, and the number of calls after which the nets alternate.
SECONDS, TURN = 1.0, 10


def write(source: TracedNet, folder: Path) -> Int8:
    """Quantizes `model.onnx` statically, with weights per channel, and measures the result.

    Args:
        source: provides the images for calibration and the labelled ones.
        folder: the version's files, with `model.onnx`.

    Returns:
        Accuracy and speed of both nets.

    Raises:
        UserError: nothing in the net can be quantized, as with a stack whose layers are a loop.
    """
    calibration, _ = source.examples("train", CALIBRATION)
    _quantize(folder, calibration)
    images, labels = source.examples(source.split, JUDGED)
    return _measure(folder, len(calibration), source.split, images, labels)


def describe(section: Int8) -> str:
    """Formats accuracy and speed as a line."""
    speeds = ", ".join(f"{s.float32_ms / s.int8_ms:.2f} times as fast at batch {s.batch}" for s in section.speed)
    return (
        f"int8: accuracy {section.int8_accuracy:.2%} on {section.images} images of the {section.split} split, float32 "
        f"{section.float32_accuracy:.2%}; {speeds}"
    )


FORM = Form(
    "int8 ONNX model",
    "int8",
    (INT8,),
    write,
    lambda folder: OpenedForm(predictor(folder / INT8)),
    tolerance=None,
    option="Also write a quantized ONNX model and measure its accuracy and speed.",
    describe=describe,
)


class _Calibration:
    """Feeds calibration images to ONNX Runtime."""

    def __init__(self, images: np.ndarray) -> None:
        self._batches = iter([images[start : start + BATCH] for start in range(0, len(images), BATCH)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Returns the next batch, or None."""
        return next(({INPUT: batch} for batch in self._batches), None)


def _quantize(folder: Path, calibration: np.ndarray) -> None:
    import onnx
    from onnxruntime import quantization

    # Silences its advice to run a pre-processing pass, which TensorFlow's own graph passes make superfluous.
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_static(
            folder / ONNX,
            folder / INT8,
            _Calibration(calibration),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
        )
    finally:
        logging.disable(logging.NOTSET)
    kinds = {array.data_type for array in onnx.load(folder / INT8).graph.initializer if len(array.dims) > 1}
    if onnx.TensorProto.INT8 not in kinds:
        raise UserError(
            "--int8 found no layers to quantize: a stack of more than 100 layers is exported as a loop, which ONNX "
            "Runtime computes in float32. Export without --int8."
        )


def _measure(folder: Path, calibration: int, split: str, images: np.ndarray, labels: np.ndarray) -> Int8:
    plain, small = predictor(folder / ONNX), predictor(folder / INT8)
    expected, found = (_in_batches(predict, images) for predict in (plain, small))
    model, features = environment.cpu()
    return Int8(
        calibration=calibration,
        split=split,
        images=len(images),
        float32_accuracy=_accuracy(expected, labels),
        int8_accuracy=_accuracy(found, labels),
        same_label=int(np.sum(found[CLASS_ID] == expected[CLASS_ID])),
        max_abs_difference=float(np.max(np.abs(found[PROBABILITIES] - expected[PROBABILITIES]))),
        speed=tuple(_speed(plain, small, images, batch) for batch in TIMED),
        cpu=" ".join((model, *features)),
    )


def _accuracy(found: Outputs, labels: np.ndarray) -> float:
    """Returns the share of the images whose class is right; or of all labels, if images may have several."""
    return float(np.mean((found[PROBABILITIES] > 0.5) == labels if labels.ndim == 2 else found[CLASS_ID] == labels))


def _in_batches(predict: Predict, images: np.ndarray) -> Outputs:
    outputs = [predict(images[start : start + BATCH]) for start in range(0, len(images), BATCH)]
    return {name: np.concatenate([batch[name] for batch in outputs]) for name in (CLASS_ID, PROBABILITIES)}


def _speed(plain: Predict, small: Predict, images: np.ndarray, batch: int) -> Speed:
    inputs = np.resize(images, (batch, *images.shape[1:]))
    times: tuple[list[float], list[float]] = [], []
    until = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < until:
        for predict, seconds in zip((plain, small), times, strict=True):
            seconds += [_seconds(predict, inputs) for _ in range(TURN)]
    float32, int8 = (1000 * float(np.median(seconds)) for seconds in times)
    return Speed(batch=batch, float32_ms=float32, int8_ms=int8)


def _seconds(predict: Predict, images: np.ndarray) -> float:
    start = time.perf_counter()
    predict(images)
    return time.perf_counter() - start

"""`model.int8.onnx`: products of whole numbers, and what they cost in accuracy and gain in time."""

import logging
import time
from pathlib import Path

import numpy as np

from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.export.parity import Predict, onnx_form
from serving.manifest import CLASS_ID, INPUT, INT8, ONNX, PROBABILITIES, Int8, Speed

# Pictures that are run at a time, and sizes of batches that are timed.
BATCH = 64
TIMED = (1, 32)
# Seconds that each net is timed for at each size, in turns of a few calls.
SECONDS, TURN = 1.0, 10


class Calibration:
    """The pictures that ranges of activations are taken from, as ONNX Runtime reads them."""

    def __init__(self, images: np.ndarray) -> None:
        self._batches = iter([images[start : start + BATCH] for start in range(0, len(images), BATCH)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch, or None."""
        return next(({INPUT: batch} for batch in self._batches), None)


def write_int8(folder: Path, calibration: np.ndarray) -> None:
    """Writes `model.int8.onnx` beside `model.onnx`: static quantisation, weights by channel.

    Args:
        folder: the version's files.
        calibration: training images, uint8 `[n, height, width, channels]`.

    Raises:
        UserError: nothing in the net can be quantised, as in a stack whose layers are a loop.
    """
    import onnx
    from onnxruntime import quantization

    # Its advice to rewrite the graph first does not concern one that TensorFlow's own passes have been through.
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_static(
            folder / ONNX,
            folder / INT8,
            Calibration(calibration),
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
            "--int8 found no layers to quantise: those of a stack of more than 100 layers are a loop, which ONNX "
            "Runtime computes in float32. Export without --int8."
        )


def measure(folder: Path, calibration: int, split: str, images: np.ndarray, labels: np.ndarray) -> Int8:
    """Compares both nets on pictures whose classes are known.

    Args:
        folder: the version's files.
        calibration: how many pictures the ranges are from.
        split: where the pictures are from.
        images: uint8 `[n, height, width, channels]`.
        labels: int64 `[n]`.

    Returns:
        Accuracy and speed of both.
    """
    plain, small = onnx_form(folder / ONNX), onnx_form(folder / INT8)
    expected, found = (_answers(predict, images) for predict in (plain, small))
    model, features = environment.cpu()
    return Int8(
        calibration=calibration,
        split=split,
        images=len(images),
        float32_accuracy=float(np.mean(expected[CLASS_ID] == labels)),
        int8_accuracy=float(np.mean(found[CLASS_ID] == labels)),
        same_label=int(np.sum(found[CLASS_ID] == expected[CLASS_ID])),
        max_abs_difference=float(np.max(np.abs(found[PROBABILITIES] - expected[PROBABILITIES]))),
        speed=tuple(_speed(plain, small, images, batch) for batch in TIMED),
        cpu=" ".join((model, *features)),
    )


def _answers(predict: Predict, images: np.ndarray) -> dict[str, np.ndarray]:
    answers = [predict(images[start : start + BATCH]) for start in range(0, len(images), BATCH)]
    return {name: np.concatenate([answer[name] for answer in answers]) for name in (CLASS_ID, PROBABILITIES)}


def _speed(plain: Predict, small: Predict, images: np.ndarray, batch: int) -> Speed:
    given = np.resize(images, (batch, *images.shape[1:]))
    times: tuple[list[float], list[float]] = [], []
    until = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < until:
        for predict, taken in zip((plain, small), times, strict=True):
            taken += [_seconds(predict, given) for _ in range(TURN)]
    float32, int8 = (1000 * float(np.median(taken)) for taken in times)
    return Speed(batch=batch, float32_ms=float32, int8_ms=int8)


def _seconds(predict: Predict, images: np.ndarray) -> float:
    start = time.perf_counter()
    predict(images)
    return time.perf_counter() - start

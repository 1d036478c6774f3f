"""The two file formats of a model: SavedModel and ONNX."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras
import tensorflow as tf

from pipelines.exporting.scans import replace_loops
from pipelines.exporting.stack import LOOP
from serving.manifest import ONNX

SIGNATURE = "serving_default"
# The newest that tf2onnx 1.17 writes; ONNX Runtime reads it since 1.14.
OPSET = 18


def write_saved_model(folder: Path, predict: tf.types.experimental.PolymorphicFunction) -> None:
    """Writes a SavedModel that needs neither this package nor Keras to be loaded.

    Args:
        folder: where to; made if missing.
        predict: the function of `pipelines.exporting.graph.prediction`; it becomes the signature `serving_default`.
    """
    # The weights are found in the function. To track the model as well would store every one of them twice.
    archive = keras.export.ExportArchive()
    archive.add_endpoint(SIGNATURE, predict)
    archive.write_out(folder, verbose=False)


def write_onnx(folder: Path, predict: tf.types.experimental.PolymorphicFunction) -> None:
    """Writes `model.onnx` from the same function.

    Args:
        folder: where to; must exist.
        predict: the function of `pipelines.exporting.graph.prediction`.
    """
    import onnx
    import tf2onnx

    with _quiet("tf2onnx"):
        proto, _ = tf2onnx.convert.from_function(predict, input_signature=predict.input_signature, opset=OPSET)
    replace_loops(proto.graph, LOOP)
    for value in (*proto.graph.input, *proto.graph.output):
        # tf2onnx calls the open dimension unk__ and a number, another one for each tensor.
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, folder / ONNX)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keeps a logger to errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

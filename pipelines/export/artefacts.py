"""The files of a model: SavedModel, ONNX, and the ONNX of what makes its input of pictures."""

from functools import cache
from pathlib import Path
from typing import Any

import keras

from pipelines.core import frameworks
from pipelines.export.graph import Function
from pipelines.export.scans import replace_loops
from pipelines.export.stack import LOOP
from serving.manifest import ONNX, PICTURE, SIGNATURE, SIGNATURE_FILES

# The newest that tf2onnx 1.17 writes; ONNX Runtime reads it since 1.14.
OPSET = 18


def write_saved_model(folder: Path, predict: Function, predict_files: Function) -> None:
    """Writes a SavedModel that needs neither this package nor Keras to be loaded.

    Args:
        folder: where to; made if missing.
        predict: from `pipelines.export.graph.prediction`; it becomes the signature `serving_default`.
        predict_files: from `prediction_of_files`; it becomes `serving_bytes`.
    """
    # The weights are found in the functions. To track the model as well would store every one of them twice.
    archive = keras.export.ExportArchive()
    archive.add_endpoint(SIGNATURE, predict)
    archive.add_endpoint(SIGNATURE_FILES, predict_files)
    archive.write_out(folder, verbose=False)


def write_onnx(folder: Path, predict: Function) -> None:
    """Writes `model.onnx` from the function of `serving_default`.

    Args:
        folder: where to; must exist.
        predict: from `pipelines.export.graph.prediction`.
    """
    import onnx

    proto = _converted(predict)
    replace_loops(proto.graph, LOOP)
    for value in (*proto.graph.input, *proto.graph.output):
        # tf2onnx calls the open dimension unk__ and a number, another one for each tensor.
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, folder / ONNX)


def write_picture(folder: Path, convert: Function) -> None:
    """Writes `picture.onnx` from the function that makes an input of any picture.

    Args:
        folder: where to; must exist.
        convert: from `pipelines.data.images.kinds.converter`.
    """
    (folder / PICTURE).write_bytes(_picture(convert))


# It is the same for all models of a kind and size, and tf2onnx takes ten seconds for that of digits.
@cache
def _picture(convert: Function) -> bytes:
    import onnx

    proto = _converted(convert)
    for size, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, ("height", "width"), strict=False):
        size.dim_param = name
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def _converted(function: Function) -> Any:
    import tf2onnx

    with frameworks.quiet("tf2onnx"):
        proto, _ = tf2onnx.convert.from_function(function, input_signature=function.input_signature, opset=OPSET)
    return proto

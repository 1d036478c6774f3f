"""TF Serving's messages without TensorFlow.

`tensorflow-serving-api` depends on TensorFlow. These are its messages with the fields needed here, identical on the
wire, in a descriptor pool of their own, so that one process can use both.
"""

from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Fields of each message: number, name, type. A type is one of protobuf's or a message above, with the prefix "*" if
# repeated, and "map " for the values of a map from strings. Enums are numbers, as on the wire.
_MESSAGES = {
    "Dim": ((1, "size", "int64"),),
    "TensorShapeProto": ((2, "dim", "*Dim"), (3, "unknown_rank", "bool")),
    "TensorProto": (
        (1, "dtype", "int32"),
        (2, "tensor_shape", "TensorShapeProto"),
        (4, "tensor_content", "bytes"),
        (5, "float_val", "*float"),
        (7, "int_val", "*int32"),
        (8, "string_val", "*bytes"),
        (10, "int64_val", "*int64"),
    ),
    "Int64Value": ((1, "value", "int64"),),
    "ModelSpec": (
        (1, "name", "string"),
        (2, "version", "Int64Value"),
        (3, "signature_name", "string"),
        (4, "version_label", "string"),
    ),
    "PredictRequest": (
        (1, "model_spec", "ModelSpec"),
        (2, "inputs", "map TensorProto"),
        (3, "output_filter", "*string"),
    ),
    "PredictResponse": ((1, "outputs", "map TensorProto"), (2, "model_spec", "ModelSpec")),
    "PredictLog": ((1, "request", "PredictRequest"),),
    "PredictionLog": ((6, "predict_log", "PredictLog"),),
    "GetModelStatusRequest": ((1, "model_spec", "ModelSpec"),),
    "StatusProto": ((1, "error_code", "int32"), (2, "error_message", "string")),
    "ModelVersionStatus": ((1, "version", "int64"), (2, "state", "int32"), (3, "status", "StatusProto")),
    "GetModelStatusResponse": ((1, "model_version_status", "*ModelVersionStatus"),),
}
_PACKAGE = "highway_keras.tf_serving"
_Field = descriptor_pb2.FieldDescriptorProto
# tensorflow.DataType by NumPy type.
_TYPES: dict[Any, int] = {np.dtype("float32"): 1, np.dtype("uint8"): 4, np.dtype("int64"): 9}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}
_STRING = 7
_VALUES = {1: "float_val", 4: "int_val", 9: "int64_val"}
# ModelVersionStatus.State.
STATES = {10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            if not kind.startswith("map "):
                _add(message, number, field, kind)
                continue
            # On the wire, a map is a repeated pair.
            entry = message.nested_type.add(name=field.title() + "Entry")
            entry.options.map_entry = True
            _add(entry, 1, "key", "string")
            _add(entry, 2, "value", kind.removeprefix("map "))
            _add(message, number, field, f"*{name}.{entry.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


def _add(message: Any, number: int, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    scalar = getattr(_Field, f"TYPE_{kind.upper()}", None)
    field.type = scalar or _Field.TYPE_MESSAGE
    if scalar is None:
        field.type_name = f".{_PACKAGE}.{kind}"


_CLASS = _classes()
TensorProto = _CLASS["TensorProto"]
PredictRequest = _CLASS["PredictRequest"]
PredictResponse = _CLASS["PredictResponse"]
PredictionLog = _CLASS["PredictionLog"]
GetModelStatusRequest = _CLASS["GetModelStatusRequest"]
GetModelStatusResponse = _CLASS["GetModelStatusResponse"]


def tensor(array: np.ndarray) -> Any:
    """Converts an array to a `TensorProto`.

    Args:
        array: float32, uint8 or int64 of any shape, or an object array of bytes.

    Raises:
        KeyError: the array has another type.

    Example:
        request.inputs["image"].CopyFrom(tensor(images))
    """
    message = TensorProto()
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    if array.dtype == object:
        message.dtype = _STRING
        message.string_val.extend(array.ravel().tolist())
    else:
        message.dtype = _TYPES[array.dtype]
        message.tensor_content = array.tobytes()
    return message


def array(tensor: Any) -> np.ndarray:
    """Converts a `TensorProto` to an array; strings become an object array of bytes.

    Args:
        tensor: a tensor of a type that `tensor` takes; values may be packed or listed, and a single listed one stands
            for all.

    Raises:
        KeyError: the tensor has another type.
    """
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype == _STRING:
        return np.array([*tensor.string_val, None], object)[:-1].reshape(shape)
    dtype = _DTYPES[tensor.dtype]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    values = np.array(getattr(tensor, _VALUES[tensor.dtype]), dtype)
    return np.full(shape, values[0]) if len(values) == 1 else values.reshape(shape)

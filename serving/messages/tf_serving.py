"""TF Serving's messages without TensorFlow, which the package `tensorflow-serving-api` depends on."""

from typing import Any

import numpy as np

from serving.messages.protobuf import message_classes

_ENUMS = {
    "DataType": {
        "DT_INVALID": 0, "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5, "DT_INT8": 6,
        "DT_STRING": 7, "DT_COMPLEX64": 8, "DT_INT64": 9, "DT_BOOL": 10, "DT_QINT8": 11, "DT_QUINT8": 12,
        "DT_QINT32": 13, "DT_BFLOAT16": 14, "DT_QINT16": 15, "DT_QUINT16": 16, "DT_UINT16": 17, "DT_COMPLEX128": 18,
        "DT_HALF": 19, "DT_RESOURCE": 20, "DT_VARIANT": 21, "DT_UINT32": 22, "DT_UINT64": 23,
    },
    "State": {"UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50},
}  # fmt: skip
_MESSAGES = {
    "Dim": ((1, "size", "int64"),),
    "TensorShapeProto": ((2, "dim", "*Dim"), (3, "unknown_rank", "bool")),
    "TensorProto": (
        (1, "dtype", "DataType"),
        (2, "tensor_shape", "TensorShapeProto"),
        (4, "tensor_content", "bytes"),
        (5, "float_val", "*float"),
        (6, "double_val", "*double"),
        (7, "int_val", "*int32"),
        (8, "string_val", "*bytes"),
        (10, "int64_val", "*int64"),
        (13, "half_val", "*int32"),
        (16, "uint32_val", "*uint32"),
        (17, "uint64_val", "*uint64"),
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
    "ModelVersionStatus": ((1, "version", "int64"), (2, "state", "State"), (3, "status", "StatusProto")),
    "GetModelStatusResponse": ((1, "model_version_status", "*ModelVersionStatus"),),
    "GetModelMetadataRequest": ((1, "model_spec", "ModelSpec"), (2, "metadata_field", "*string")),
    "Any": ((1, "type_url", "string"), (2, "value", "bytes")),
    "GetModelMetadataResponse": ((1, "model_spec", "ModelSpec"), (2, "metadata", "map Any")),
    "TensorInfo": ((1, "name", "string"), (2, "dtype", "DataType"), (3, "tensor_shape", "TensorShapeProto")),
    "SignatureDef": ((1, "inputs", "map TensorInfo"), (2, "outputs", "map TensorInfo"), (3, "method_name", "string")),
    "SignatureDefMap": ((1, "signature_def", "map SignatureDef"),),
}
# NumPy's types with TensorFlow's names, and the field of a tensor that lists its values.
_DTYPES = {
    "float32": ("DT_FLOAT", "float_val"),
    "float64": ("DT_DOUBLE", "double_val"),
    "float16": ("DT_HALF", "half_val"),
    "uint8": ("DT_UINT8", "int_val"),
    "uint16": ("DT_UINT16", "int_val"),
    "uint32": ("DT_UINT32", "uint32_val"),
    "uint64": ("DT_UINT64", "uint64_val"),
    "int8": ("DT_INT8", "int_val"),
    "int16": ("DT_INT16", "int_val"),
    "int32": ("DT_INT32", "int_val"),
    "int64": ("DT_INT64", "int64_val"),
}
_TYPES = {np.dtype(name): _ENUMS["DataType"][datatype] for name, (datatype, _) in _DTYPES.items()}
_NUMBERS = {number: dtype for dtype, number in _TYPES.items()}
_VALUES = {_ENUMS["DataType"][datatype]: field for datatype, field in _DTYPES.values()}
_STRING = _ENUMS["DataType"]["DT_STRING"]
DATA_TYPES = {number: name for name, number in _ENUMS["DataType"].items()}
"""TensorFlow's names of types, by number."""
NUMERIC = tuple(datatype for datatype, _ in _DTYPES.values())
"""TensorFlow's names of the types of numbers that `array` converts."""
# ModelVersionStatus.State, by number.
STATES = {number: name for name, number in _ENUMS["State"].items()}
# Type of the content in a message of type Any.
SIGNATURES_URL = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
# Fields for `bulk_bytes`: pixels and files.
BULK = ((2, 2, 4), (2, 2, 8))


_CLASS = message_classes("highway_keras.tf_serving", _MESSAGES, _ENUMS)
ModelSpec = _CLASS["ModelSpec"]
TensorProto = _CLASS["TensorProto"]
PredictRequest = _CLASS["PredictRequest"]
PredictResponse = _CLASS["PredictResponse"]
PredictionLog = _CLASS["PredictionLog"]
GetModelStatusRequest = _CLASS["GetModelStatusRequest"]
GetModelStatusResponse = _CLASS["GetModelStatusResponse"]
GetModelMetadataRequest = _CLASS["GetModelMetadataRequest"]
GetModelMetadataResponse = _CLASS["GetModelMetadataResponse"]
SignatureDefMap = _CLASS["SignatureDefMap"]


def data_type(dtype: Any) -> int:
    """Returns TensorFlow's number of a NumPy type; an object array has strings."""
    return _STRING if dtype is object else _TYPES[np.dtype(dtype)]


def tensor(array: np.ndarray, *, listed: bool = False) -> Any:
    """Converts an array to a `TensorProto`.

    Args:
        array: numbers of any shape, or an object array of bytes.
        listed: whether to list the values one by one, as TF Serving does in its answers.

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
        return message
    message.dtype = _TYPES[array.dtype]
    if listed:
        getattr(message, _VALUES[message.dtype]).extend(array.ravel().tolist())
    else:
        message.tensor_content = array.tobytes()
    return message


def array(tensor: Any) -> np.ndarray:
    """Converts a `TensorProto` to an array; strings become an object array of bytes.

    Args:
        tensor: a tensor of a type that `tensor` takes; values may be packed or listed, and a single listed one stands
            for all.

    Raises:
        KeyError: the tensor has another type.
        ValueError: its values do not fit its shape.
        OverflowError: listed values do not fit its type.
    """
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype == _STRING:
        return np.array([*tensor.string_val, None], object)[:-1].reshape(shape)
    dtype = _NUMBERS[tensor.dtype]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    listed = np.array(getattr(tensor, _VALUES[tensor.dtype]))
    # Half-precision numbers are listed by their bits.
    stored = np.dtype(np.uint16) if dtype == np.float16 else dtype
    # The field of small integers has 32 bits; NumPy would convert 300 to 44.
    if (
        stored.kind in "iu"
        and len(listed)
        and not np.iinfo(stored).min <= listed.min() <= listed.max() <= np.iinfo(stored).max
    ):
        raise OverflowError(f"the tensor has values that are not of type {dtype}.")
    values = listed.astype(stored).view(dtype)
    return np.full(shape, values[0]) if len(values) == 1 else values.reshape(shape)

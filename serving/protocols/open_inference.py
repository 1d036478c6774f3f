"""The Open Inference Protocol, version 2, over HTTP: JSON, and its extension for binary tensors after the JSON."""

import math
import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np
import orjson

from serving.errors import LimitError, RequestError, in_bytes
from serving.manifest import ENCODED, GATE_MEANS, PROBABILITIES, Manifest
from serving.model import top
from serving.protocols.request import IMAGES, Request, cast, check_shape, decode_base64, expected, parse_json

# Header with the length of the JSON in a body with binary tensors, in requests and responses.
HEADER = "inference-header-content-length"
# Characters of an id, which the response repeats.
ID = 1024
DATATYPES = {"uint8": "UINT8", "float32": "FP32", "int64": "INT64", "string": "BYTES"}
# Types in which pixels and rows may be sent, little-endian; BF16 is not among NumPy's.
NUMERIC = {
    "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


@dataclass(frozen=True)
class RequestedOutput:
    """Form in which to return an output."""

    binary: bool = False
    """After the JSON instead of inside it."""
    classes: int = 0
    """Number of classes to return instead of the tensor (Triton's classification extension); 0 returns the tensor."""


@dataclass(frozen=True)
class InferRequest:
    """A parsed body."""

    request: Request
    id: str | None
    outputs: dict[str, RequestedOutput] | None
    """Requested outputs by name; None for all, in the form that `binary` states."""
    binary: bool


def parse(body: bytes, header: str | None, manifest: Manifest, images: int = IMAGES) -> InferRequest:
    """Parses the body of `/infer`.

    Args:
        body: JSON, followed by the data of binary tensors.
        header: the value of `Inference-Header-Content-Length`, if there is one.
        manifest: manifest of the requested model.
        images: maximum number of images or rows in a request.

    Raises:
        LimitError: it has more images or rows, or see `serving.protocols.request.parse_json`.
        RequestError: it is malformed, or its input does not fit the model.
    """
    length = json_length(header, len(body))
    given = parse_json(body[:length] if length < len(body) else body, manifest, images)
    inputs = given.get("inputs") if isinstance(given, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RequestError(f'"inputs" must be a list of one input, {input_names(manifest)}.')
    binary = _flag(_parameters(given), "binary_data_output", False)
    return InferRequest(
        _request(inputs[0], memoryview(body)[length:], manifest, images),
        _id(given.get("id")),
        _requested_outputs(given.get("outputs"), binary, manifest),
        binary,
    )


def json_length(header: str | None, whole: int) -> int:
    """Returns the length of the JSON in a body.

    Args:
        header: the value of `Inference-Header-Content-Length`, if there is one.
        whole: length of the body.

    Raises:
        RequestError: the header is not a valid length.
    """
    if header is None:
        return whole
    if not (header.isascii() and header.isdecimal() and len(header) < 19) or int(header) > whole:
        raise RequestError(f"Inference-Header-Content-Length must be a number up to {whole}. Received: {header!r}.")
    return int(header)


def format_response(
    outputs: Mapping[str, np.ndarray], manifest: Manifest, infer: InferRequest
) -> tuple[bytes, int | None]:
    """Formats the body of a response; returns it with the length of its JSON if binary data follows.

    Args:
        outputs: arrays by name; labels are a list of strings.
        manifest: manifest of the model.
        infer: the request.
    """
    described, binaries = [], []
    requested = infer.outputs or dict.fromkeys(outputs, RequestedOutput(infer.binary))
    for name, wanted in requested.items():
        datatype, shape, value = output(name, outputs, manifest, wanted.classes)
        one: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if wanted.binary:
            raw = raw_output(value)
            one["parameters"] = {"binary_data_size": len(raw)}
            binaries.append(raw)
        else:
            one["data"] = value.ravel() if isinstance(value, np.ndarray) else value
        described.append(one)
    whole: dict[str, Any] = {"model_name": manifest.name, "model_version": str(manifest.version), "outputs": described}
    if infer.id is not None:
        whole["id"] = infer.id
    head = orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join([head, *binaries]), len(head) if binaries else None


def output(
    name: str, outputs: Mapping[str, Any], manifest: Manifest, classes: int
) -> tuple[str, list[int], np.ndarray | list[str]]:
    """Returns datatype, shape and values of one output.

    Args:
        name: name of the output.
        outputs: arrays by name; labels are a list of strings.
        manifest: manifest of the model.
        classes: number of classes to return as "value:index:label"; 0 returns the values.
    """
    value = outputs[name]
    if not classes:
        shape = list(value.shape) if isinstance(value, np.ndarray) else [len(value)]
        return DATATYPES[manifest.outputs[name].dtype], shape, value
    names = _classified(manifest)[name]
    found = [
        f"{row[index]:.6f}:{index}:{names[index]}"
        for row, indices in zip(value, top(value, classes), strict=True)
        for index in indices
    ]
    return "BYTES", [len(value), min(classes, len(names))], found


def raw_output(value: np.ndarray | list[str]) -> bytes:
    """Returns the values of an output as bytes, strings each with its length."""
    return value.tobytes() if isinstance(value, np.ndarray) else _lengths_and_bytes(value)


def metadata(manifest: Manifest, platform: str, versions: list[int]) -> dict[str, Any]:
    """Returns the content of `GET /v2/models/{name}`."""
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": platform,
        "inputs": [
            {"name": name, "datatype": DATATYPES[tensor.dtype], "shape": [-1, *tensor.shape[1:]]}
            for name, tensor in manifest.signatures.values()
        ],
        "outputs": [
            {"name": name, "datatype": DATATYPES[tensor.dtype], "shape": [-1, *tensor.shape[1:]]}
            for name, tensor in manifest.outputs.items()
        ],
    }


def _request(given: dict[str, Any], tail: memoryview, manifest: Manifest, images: int) -> Request:
    name, datatype, shape = given.get("name"), given.get("datatype"), given.get("shape")
    check_input(name, datatype, manifest)
    check_parameters(str(name), _parameters(given))
    # Not `isinstance`: in Python, true is an int.
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise RequestError(f"input {name!r} must have a shape, a list of sizes. Received: {shape!r}.")
    size = _parameters(given).get("binary_data_size")
    if size is None and len(tail):
        raise RequestError(f"{len(tail)} bytes follow the JSON, and input {name!r} has no binary_data_size.")
    if size is not None:
        if given.get("data") is not None:
            raise RequestError(f'input {name!r} has both "data" and binary_data_size. Send one of them.')
        if type(size) is not int:
            raise RequestError(f"binary_data_size must be a whole number. Received: {size!r}.")
        if size != len(tail):
            raise RequestError(f"binary_data_size is {size}, and {len(tail)} bytes follow the JSON.")
        check_count(shape, manifest, images)
    if name == ENCODED:
        files = _files(given.get("data"), shape) if size is None else raw_files(tail, sum(shape[:1]))
        if shape not in ([len(files)], [len(files), 1]):
            raise RequestError(f"input {ENCODED!r} has the shape {shape} and {len(files)} files.")
        return Request(None, files)
    check_shape(tuple(shape), manifest)
    if size is None:
        return Request(cast(np.reshape(_flat(given.get("data"), shape), shape), manifest), None)
    return Request(raw_values(tail, str(datatype), shape, manifest), None)


def check_input(name: Any, datatype: Any, manifest: Manifest) -> None:
    """Raises `RequestError` for an input that the model does not have, or a datatype that cannot be converted."""
    if name not in [one for one, _ in manifest.signatures.values()]:
        raise RequestError(f"there is no input {name!r}. Give {input_names(manifest)}.")
    if name == ENCODED and datatype != "BYTES":
        raise RequestError(f"input {name!r} must have the datatype BYTES. Received: {datatype!r}.")
    if name != ENCODED and (not isinstance(datatype, str) or datatype not in NUMERIC):
        own = DATATYPES[manifest.input.dtype]
        others = ", ".join(one for one in NUMERIC if one != own)
        whole = "" if manifest.is_table else " with whole numbers"
        raise RequestError(f"input {name!r} must have the datatype {own}, or {others}{whole}. Received: {datatype!r}.")


def check_parameters(name: str, parameters: Container[str]) -> None:
    """Raises `RequestError` for an input or output in shared memory, as Triton's clients can ask for."""
    if "shared_memory_region" in parameters:
        raise RequestError(f"{name!r} is in shared memory, which this endpoint does not use. Send it in the request.")


def check_count(shape: list[int], manifest: Manifest, images: int) -> None:
    """Raises `LimitError` for a shape of too many images or rows; call it before anything is made from the data."""
    if shape and shape[0] > images:
        raise LimitError(f"{shape[0]} {manifest.unit}s in one request are more than the limit of {images}.")


def input_names(manifest: Manifest) -> str:
    """Returns the names of a model's inputs; a request has one of them."""
    return " or ".join(repr(name) for name, _ in manifest.signatures.values())


def raw_values(data: bytes | memoryview, datatype: str, shape: list[int], manifest: Manifest) -> np.ndarray:
    """Reads pixels or rows from the bytes of a tensor.

    Args:
        data: the values, little-endian.
        datatype: one of `NUMERIC`.
        shape: shape of the tensor.
        manifest: manifest of the requested model.

    Raises:
        RequestError: the size does not fit, or see `serving.protocols.request.cast`.
    """
    dtype = np.dtype(NUMERIC[datatype])
    if len(data) != dtype.itemsize * math.prod(shape):
        needed = dtype.itemsize * math.prod(shape)
        raise RequestError(
            f"the data has {in_bytes(len(data))}, the shape {shape} in {datatype} needs {needed:,}. "
            f"{expected(manifest)}"
        )
    return cast(np.frombuffer(data, dtype).reshape(shape), manifest)


def _flat(data: Any, shape: list[int]) -> np.ndarray:
    try:
        # As objects: NumPy would otherwise convert true, and digits in a string, to numbers.
        found = np.array(data, object)
        # In a row, null is a missing number. A number or null without a list has no dimension.
        wrong = not found.ndim or set(map(type, found.ravel().tolist())) - {int, float, NoneType}
        values = found.astype(np.float64) if not wrong else None
    except (ValueError, TypeError):
        values = None
    if values is None:
        raise RequestError(f'"data" must be a list of numbers, flat or nested as the shape {shape} is.')
    if values.size != math.prod(shape):
        raise RequestError(f'"data" has {values.size} values, the shape {shape} needs {math.prod(shape)}.')
    if values.ndim > 1 and list(values.shape) != shape:
        # Such as channels first: the right number of values, in another order.
        raise RequestError(
            f'"data" is nested as {list(values.shape)}, and the shape is {shape}. Nest it as the shape is, or send it '
            "flat, in the order of the shape."
        )
    return values.ravel()


def _files(data: Any, shape: list[int]) -> list[bytes]:
    nested = len(shape) == 2 and isinstance(data, list) and all(isinstance(one, list) and len(one) == 1 for one in data)
    texts = [text for (text,) in data] if nested else data
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f'"data" of {ENCODED!r} must be a list of base64 strings, flat or nested as the shape is.')
    return [decode_base64(text, f'"data" of {ENCODED!r}') for text in texts]


def raw_files(data: bytes | memoryview, most: int = IMAGES) -> list[bytes]:
    """Reads strings, each preceded by its length in 4 bytes.

    Args:
        data: the strings.
        most: their maximum number, as the shape states it; a megabyte may have a quarter of a million empty ones.

    Raises:
        RequestError: a length is wrong, or there are more strings.
    """
    files: list[bytes] = []
    at = 0
    while at < len(data):
        if len(files) == most:
            raise RequestError(f"the data has more strings than the shape, which has {most}.")
        if at + 4 > len(data) or at + 4 + (length := struct.unpack_from("<I", data, at)[0]) > len(data):
            raise RequestError("a string exceeds the data: each is preceded by its length in 4 bytes.")
        files.append(bytes(data[at + 4 : at + 4 + length]))
        at += 4 + length
    return files


def _lengths_and_bytes(texts: list[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def _requested_outputs(outputs: Any, binary: bool, manifest: Manifest) -> dict[str, RequestedOutput] | None:
    """Parses the requested outputs; `binary` is the form of those that do not state their own."""
    if outputs is None:
        return None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise RequestError('"outputs" must be a list of objects with a "name".')
    requested = {}
    for one in outputs:
        parameters = _parameters(one)
        classes = check_output(one.get("name"), parameters.get("classification", 0), manifest)
        check_parameters(one["name"], parameters)
        requested[one["name"]] = RequestedOutput(_flag(parameters, "binary_data", binary), classes)
    return requested or None


def check_output(name: Any, classes: Any, manifest: Manifest) -> int:
    """Checks a requested output, and returns the number of classes to return of it.

    Raises:
        RequestError: there is no such output, or it has no classes.
    """
    if not isinstance(name, str) or name not in manifest.outputs:
        raise RequestError(f"there is no output {name!r}. There are: {', '.join(manifest.outputs)}.")
    # Not `isinstance`: in Python, true is an int.
    if type(classes) is not int or classes < 0:
        raise RequestError(f'"classification" of {name!r} must be a number of classes. Received: {classes!r}.')
    if classes and name not in (allowed := _classified(manifest)):
        others = f" It applies to {' and '.join(allowed)}." if allowed else ""
        raise RequestError(f'"classification" does not apply to {name!r}.{others}')
    return classes


def _classified(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Returns the outputs that `classification` applies to, with the name of each of their values."""
    found = {PROBABILITIES: manifest.labels, GATE_MEANS: manifest.gates}
    return {name: names for name, names in found.items() if names and name in manifest.outputs}


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    found = given.get("parameters")
    return found if isinstance(found, dict) else {}


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError(f'"{name}" must be true or false. Received: {value!r}.')
    return value


def _id(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise RequestError(f"the id must be a string. Received: {value!r}.")
    if value and len(value) > ID:
        raise RequestError(f"the id has {len(value):,} characters, more than the limit of {ID:,}.")
    return value

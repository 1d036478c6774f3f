"""The Open Inference Protocol, version 2, over gRPC: messages instead of JSON, with the same meaning."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from serving.errors import RequestError
from serving.manifest import ENCODED, Manifest
from serving.messages.open_inference import CLASSES
from serving.protocols import open_inference as protocol
from serving.protocols.request import IMAGES, GrpcMessage, Request, cast, check_shape

_ModelInferRequest, _ModelInferResponse = CLASSES["ModelInferRequest"], CLASSES["ModelInferResponse"]
# Field of a tensor's contents that lists its values, by datatype; FP16 is sent raw only.
_CONTENTS = {
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@dataclass(frozen=True)
class InferMessage(GrpcMessage):
    """A parsed `ModelInferRequest`."""

    id: str
    outputs: dict[str, int] | None
    """Requested outputs, and how many classes to return of each (0 returns the tensor); None for all."""
    raw: bool
    """True if tensors are sent as bytes, and so returned."""


def parse(body: bytes, manifest: Manifest, images: int = IMAGES) -> InferMessage:
    """Parses a `ModelInferRequest`.

    Args:
        body: the message.
        manifest: manifest of the requested model.
        images: maximum number of images or rows in a request.

    Raises:
        LimitError: it has more images or rows.
        RequestError: it is malformed, or its input does not fit the model.
    """
    try:
        given = _ModelInferRequest.FromString(body)
    except DecodeError:
        raise RequestError("the message is not a ModelInferRequest.") from None
    if len(given.inputs) != 1 or len(given.raw_input_contents) > 1:
        raise RequestError(f"there must be one input, {protocol.input_names(manifest)}.")
    if len(given.id) > protocol.ID:
        raise RequestError(f"the id has {len(given.id):,} characters, more than the limit of {protocol.ID:,}.")
    outputs = {one.name: protocol.check_output(one.name, _classes(one), manifest) for one in given.outputs}
    for one in (*given.inputs, *given.outputs):
        protocol.check_parameters(one.name, one.parameters)
    raw = given.raw_input_contents[0] if given.raw_input_contents else None
    if raw is not None and given.inputs[0].contents.ByteSize():
        raise RequestError(
            f"input {given.inputs[0].name!r} has both contents and raw_input_contents. Send one of them."
        )
    return InferMessage(_request(given.inputs[0], raw, manifest, images), given.id, outputs or None, raw is not None)


def format_response(outputs: Mapping[str, Any], manifest: Manifest, infer: InferMessage) -> bytes:
    """Formats a `ModelInferResponse`.

    Args:
        outputs: arrays by name; labels are a list of strings.
        manifest: manifest of the model.
        infer: the request.
    """
    response = _ModelInferResponse(model_name=manifest.name, model_version=str(manifest.version), id=infer.id)
    for name, classes in (infer.outputs or dict.fromkeys(outputs, 0)).items():
        datatype, shape, value = protocol.output(name, outputs, manifest, classes)
        one = response.outputs.add(name=name, datatype=datatype, shape=shape)
        if infer.raw:
            response.raw_output_contents.append(protocol.raw_output(value))
            continue
        values = value.ravel().tolist() if isinstance(value, np.ndarray) else [text.encode() for text in value]
        getattr(one.contents, _CONTENTS[datatype]).extend(values)
    return response.SerializeToString()


def _classes(output: Any) -> Any:
    """Returns the value of the parameter `classification`, of whatever type; 0 without it."""
    parameter = output.parameters.get("classification")
    fields = parameter.ListFields() if parameter else ()
    return fields[0][1] if fields else 0


def _request(given: Any, raw: bytes | None, manifest: Manifest, images: int) -> Request:
    protocol.check_input(given.name, given.datatype, manifest)
    shape = list(given.shape)
    # Before any list is made from the message.
    if not shape or min(shape) < 0:
        raise RequestError(f"input {given.name!r} must have a shape without negative sizes. Received: {shape[:8]}.")
    protocol.check_count(shape, manifest, images)
    if given.name == ENCODED:
        files = given.contents.bytes_contents if raw is None else protocol.raw_files(raw, shape[0])
        if shape not in ([len(files)], [len(files), 1]):
            raise RequestError(f"input {ENCODED!r} has the shape {shape[:8]} and {len(files)} files.")
        return Request(None, list(files))
    check_shape(tuple(shape[:8]), manifest)
    if raw is not None:
        return Request(protocol.raw_values(raw, given.datatype, shape, manifest), None)
    field = _CONTENTS.get(given.datatype)
    if field is None:
        raise RequestError(f"input {given.name!r} in {given.datatype} must be sent as raw_input_contents.")
    listed = getattr(given.contents, field)
    if len(listed) != math.prod(shape):
        raise RequestError(f"{field} has {len(listed)} values, the shape {shape} needs {math.prod(shape)}.")
    return Request(cast(np.array(listed).reshape(shape), manifest), None)

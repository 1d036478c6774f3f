"""TF Serving's PredictionService and ModelService: messages instead of JSON, with the same meaning as over REST."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from serving.errors import LimitError, RequestError
from serving.inputs import Tensor
from serving.manifest import ENCODED, LARGEST_VERSION, Manifest
from serving.messages import tf_serving as messages
from serving.protocols.request import IMAGES, GrpcMessage, Request, cast, check_shape, signature_of

_METHOD = "tensorflow/serving/predict"
# Fields of metadata that clients may ask for.
SIGNATURE_DEF = "signature_def"
_NUMPY = {"uint8": np.uint8, "float32": np.float32, "int64": np.int64, "string": object}


@dataclass(frozen=True)
class PredictMessage(GrpcMessage):
    """A parsed `PredictRequest`."""

    signature: str
    outputs: tuple[str, ...]
    """Requested outputs; empty for all."""


def parse(body: bytes, manifest: Manifest, images: int = IMAGES) -> PredictMessage:
    """Parses a `PredictRequest`.

    Args:
        body: the message.
        manifest: manifest of the requested model.
        images: maximum number of images or rows in a request.

    Raises:
        LimitError: it has more images or rows.
        RequestError: it is malformed, or names a signature, input or output that the model does not have.
    """
    given = message(messages.PredictRequest, body)
    signature = given.model_spec.signature_name or signature_of(given.inputs, manifest)
    if signature not in manifest.signatures:
        raise RequestError(f"there is no signature {signature!r}. There are: {', '.join(manifest.signatures)}.")
    name, _ = manifest.signatures[signature]
    if list(given.inputs) != [name]:
        received = ", ".join(map(repr, list(given.inputs)[:8])) or "none"
        raise RequestError(f"the signature {signature} has the one input {name!r}. Received: {received}.")
    for output in given.output_filter:
        if output not in manifest.outputs:
            raise RequestError(f"there is no output {output!r}. There are: {', '.join(manifest.outputs)}.")
    return PredictMessage(_request(given.inputs[name], name, manifest, images), signature, tuple(given.output_filter))


def format_response(outputs: Mapping[str, Any], manifest: Manifest, predict: PredictMessage) -> bytes:
    """Formats a `PredictResponse`; values are listed one by one, where TF Serving's clients look for them.

    Args:
        outputs: arrays by name; labels are a list of strings.
        manifest: manifest of the model.
        predict: the request.
    """
    response = messages.PredictResponse()
    _specify(response.model_spec, manifest, predict.signature)
    for name in predict.outputs or outputs:
        value = outputs[name]
        if not isinstance(value, np.ndarray):
            value = np.array([text.encode() for text in value], object)
        response.outputs[name].CopyFrom(messages.tensor(value, listed=True))
    return response.SerializeToString()


def statuses(versions: Iterable[tuple[int, str, str]]) -> bytes:
    """Formats a `GetModelStatusResponse`.

    Args:
        versions: number, state as in REST (AVAILABLE, LOADING, END), and the reason of a failure.
    """
    response = messages.GetModelStatusResponse()
    for number, state, reason in versions:
        if number > LARGEST_VERSION:
            # It was refused, and the message has no room for its number.
            continue
        one = response.model_version_status.add(version=number, state=state)
        # FAILED_PRECONDITION.
        one.status.error_code = 9 if state == "END" else 0
        one.status.error_message = reason
    return response.SerializeToString()


def metadata(manifest: Manifest) -> bytes:
    """Formats a `GetModelMetadataResponse` with the signatures."""

    def describe(info: Any, name: str, tensor: Tensor) -> None:
        info.name = name
        info.dtype = messages.data_type(_NUMPY[tensor.dtype])
        for size in tensor.shape:
            info.tensor_shape.dim.add(size=-1 if size is None else size)

    signatures = messages.SignatureDefMap()
    for signature, (name, tensor) in manifest.signatures.items():
        one = signatures.signature_def[signature]
        one.method_name = _METHOD
        describe(one.inputs[name], name, tensor)
        for output, described in manifest.outputs.items():
            describe(one.outputs[output], output, described)
    response = messages.GetModelMetadataResponse()
    _specify(response.model_spec, manifest, "")
    response.metadata[SIGNATURE_DEF].type_url = messages.SIGNATURES_URL
    response.metadata[SIGNATURE_DEF].value = signatures.SerializeToString()
    return response.SerializeToString()


def version(spec: Any) -> tuple[str, int | None, str | None]:
    """Returns name, version and label in a `ModelSpec`; no version, or 0, is the newest.

    Raises:
        RequestError: the version is negative.
    """
    number = spec.version.value
    if number < 0:
        raise RequestError(f"a version is a positive integer. Received: {number}.")
    return spec.name, number or None, spec.version_label or None


def message(kind: Any, body: bytes) -> Any:
    """Parses a message of a kind.

    Raises:
        RequestError: it is malformed.
    """
    try:
        return kind.FromString(body)
    except DecodeError:
        raise RequestError(f"the message is not a {kind.DESCRIPTOR.name}.") from None


def _specify(spec: Any, manifest: Manifest, signature: str) -> None:
    spec.name, spec.signature_name = manifest.name, signature
    spec.version.value = manifest.version


def _request(tensor: Any, name: str, manifest: Manifest, images: int) -> Request:
    shape = [dim.size for dim in tensor.tensor_shape.dim[:8]]
    # Before any array is made: a single listed value stands for all.
    if not shape:
        raise RequestError(f"input {name!r} is a single value. Expected a batch, of the shape [1] for one.")
    if min(shape) < 0:
        raise RequestError(f"input {name!r} must have a shape without negative sizes. Received: {shape}.")
    if shape[0] > images:
        raise LimitError(f"{shape[0]} {manifest.unit}s in one request are more than the limit of {images}.")
    if name != ENCODED:
        check_shape(tuple(shape), manifest)
    elif shape[1:] not in ([], [1]):
        raise RequestError(f"input {name!r} must be a list of files. Received the shape {shape}.")
    try:
        found = messages.array(tensor)
    except KeyError:
        dtype, wanted = messages.DATA_TYPES.get(tensor.dtype, tensor.dtype), _expected(name, manifest)
        raise RequestError(f"input {name!r} has the type {dtype}, which is not converted. Expected {wanted}.") from None
    except OverflowError:
        dtype = messages.DATA_TYPES[tensor.dtype]
        raise RequestError(f"input {name!r} has values out of range for its type, {dtype}.") from None
    except ValueError:
        raise RequestError(f"input {name!r} does not have as many values as its shape {shape}.") from None
    if (found.dtype == object) != (name == ENCODED):
        raise RequestError(f"input {name!r} has the type {found.dtype}. Expected {_expected(name, manifest)}.")
    return Request(None, found.ravel().tolist()) if name == ENCODED else Request(cast(found, manifest), None)


def _expected(name: str, manifest: Manifest) -> str:
    if name == ENCODED:
        return "DT_STRING"
    first = "DT_FLOAT" if manifest.is_table else "DT_UINT8"
    others = ", ".join(datatype for datatype in messages.NUMERIC if datatype != first)
    return f"{first}, or another type of number{'' if manifest.is_table else ' with whole numbers'}: {others}"

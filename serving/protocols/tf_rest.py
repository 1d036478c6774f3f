"""The JSON of TF Serving's REST interface (tensorflow.org/tfx/serving/api_rest), in its row and its column format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from serving.errors import RequestError
from serving.inputs import ROW
from serving.manifest import ENCODED, SIGNATURE_FILES, Manifest
from serving.protocols.request import IMAGES, Request, decode_base64, parse_json, signature_of, to_pixels, to_rows

# Names of the states of a version.
STATES = {"available": "AVAILABLE", "loading": "LOADING", "failed": "END"}


@dataclass(frozen=True)
class PredictRequest:
    """A parsed body, and whether it has the row format (`instances`), in which the response is then written."""

    request: Request
    rows: bool


def parse(body: bytes, manifest: Manifest, images: int = IMAGES) -> PredictRequest:
    """Parses the body of `:predict`.

    Args:
        body: JSON with `instances` or `inputs`; and `signature_name`, unless it is `serving_default` or the values are
            in objects under the name of the input.
        manifest: manifest of the requested model.
        images: maximum number of images or rows in a request.

    Raises:
        LimitError: see `serving.protocols.request.parse_json`.
        RequestError: it is malformed, or names a signature or input that the model does not have.

    Example:
        parse(b'{"signature_name": "serving_bytes", "instances": [{"b64": "iVBORw0KGgo="}]}', manifest)
    """
    given = parse_json(body, manifest, images)
    if not isinstance(given, dict) or ("instances" in given) == ("inputs" in given):
        raise RequestError('the body must be a JSON object with either "instances" or "inputs".')
    rows = "instances" in given
    signature = given.get("signature_name") or signature_of(_named(given["instances" if rows else "inputs"]), manifest)
    if not isinstance(signature, str) or signature not in manifest.signatures:
        raise RequestError(f"there is no signature {signature!r}. There are: {', '.join(manifest.signatures)}.")
    name, _ = manifest.signatures[signature]
    if manifest.is_table:
        return PredictRequest(to_rows(_table(given["instances"] if rows else given["inputs"]), manifest), rows)
    values = _rows(given["instances"], name) if rows else _column(given["inputs"], name)
    if name == ENCODED:
        return PredictRequest(Request(None, [_file(value) for value in values]), rows)
    if any(isinstance(value, dict) and "b64" in value for value in values):
        raise RequestError(f'images as {{"b64": ...}} need "signature_name": "{SIGNATURE_FILES}" in the request.')
    return PredictRequest(Request(to_pixels(values, manifest), None), rows)


def format_response(outputs: Mapping[str, np.ndarray], rows: bool, warnings: Sequence[str] = ()) -> bytes:
    """Formats the body of a response; as TF Serving does, a lone output is written without its name.

    Args:
        outputs: arrays by name; labels are a list of strings.
        rows: whether to write an object per image or row instead of a list per output.
        warnings: notes on the rows, if any.
    """
    more = {"warnings": warnings} if warnings else {}
    content: dict[str, Any]
    if len(outputs) == 1:
        (lone,) = outputs.values()
        content = {"predictions" if rows else "outputs": lone}
    elif rows:
        lists = [value.tolist() if isinstance(value, np.ndarray) else value for value in outputs.values()]
        content = {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*lists, strict=True)]}
    else:
        content = {"outputs": dict(outputs)}
    return orjson.dumps({**content, **more}, option=orjson.OPT_SERIALIZE_NUMPY)


def _named(values: Any) -> list[str]:
    """Returns the names of inputs in values that are in objects."""
    one = values[0] if isinstance(values, list) and values else values
    return list(one) if isinstance(one, dict) else []


def _table(values: Any) -> Any:
    """Unwraps rows, or each of them, in an object under the name of the input, as TF Serving's clients write them."""
    if isinstance(values, list):
        return [_table(value) if isinstance(value, dict) else value for value in values]
    is_named = isinstance(values, dict) and list(values) == [ROW] and isinstance(values[ROW], list)
    return values[ROW] if is_named else values


def _rows(instances: Any, name: str) -> list[Any]:
    if not isinstance(instances, list):
        raise RequestError('"instances" must be a list with one value per image.')
    return [_unwrapped(instance, name) for instance in instances]


def _column(inputs: Any, name: str) -> list[Any]:
    values = _unwrapped(inputs, name)
    if not isinstance(values, list):
        raise RequestError(f'"inputs" must be a list of images, or an object with that list as "{name}".')
    return values


def _unwrapped(value: Any, name: str) -> Any:
    """Unwraps a value that may be in an object under the name of the input."""
    if not isinstance(value, dict) or "b64" in value:
        return value
    if set(value) != {name}:
        raise RequestError(
            f"the signature has the one input {name!r}. Received: {', '.join(map(repr, value)) or '{}'}."
        )
    return value[name]


def _file(value: Any) -> bytes:
    if not isinstance(value, dict) or set(value) != {"b64"}:
        raise RequestError('an image file must be given as {"b64": "base64 of its bytes"}.')
    return decode_base64(value["b64"])

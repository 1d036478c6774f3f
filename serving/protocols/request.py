"""What all wire formats come down to."""

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from serving.errors import LimitError, RequestError
from serving.manifest import Manifest

# Of a request, if nothing else is said.
PICTURES = 256
# Values of a JSON body that are no pixels.
SPARE = 10_000


@dataclass(frozen=True)
class Request:
    """Pictures to predict: pixels of the net's own size, or files of any; one of the two is None."""

    images: np.ndarray | None
    """uint8 `[n, height, width, channels]`."""
    files: list[bytes] | None
    """PNG, JPEG or another format that `serving.pictures` reads."""
    names: list[str] | None = None
    """What to call the files in messages; None numbers them."""


def parsed(text: bytes, manifest: Manifest, pictures: int) -> Any:
    """What JSON says.

    Args:
        text: the JSON.
        manifest: of the model that it is for.
        pictures: how many a request may have.

    Raises:
        LimitError: it has far more values than their pixels; they would take gigabytes of memory.
        RequestError: it is none.
    """
    # Each pixel may have a list of its own.
    most = 4 * pictures * math.prod(manifest.input.shape[1:]) + SPARE
    if len(text) > most and sum(map(text.count, (b",", b"[", b"{"))) > most:
        raise LimitError(f"the JSON has far more values than {pictures} pictures have pixels. {expected(manifest)}")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}.") from None


def pixels(values: Any, manifest: Manifest) -> np.ndarray:
    """Nested lists of pixels as a batch.

    Raises:
        RequestError: they are not whole numbers from 0 to 255, or of another shape.
    """
    try:
        found = np.array(values)
    except ValueError:
        raise RequestError(f"the rows of the image differ in length. {expected(manifest)}") from None
    if found.size == 0 and found.ndim <= 1:
        found = np.zeros((0, *manifest.input.shape[1:]), np.uint8)
    check_shape(found.shape, manifest)
    if found.dtype.kind not in "iuf" or (found.size and not (found.min() >= 0 and found.max() <= 255)):
        raise RequestError(f"pixels must be numbers from 0 to 255. {expected(manifest)}")
    whole = found.astype(np.uint8)
    if not np.array_equal(whole, found):
        raise RequestError(f"pixels must be whole numbers, as in the file. {expected(manifest)}")
    return whole


def check_shape(shape: tuple[int, ...], manifest: Manifest) -> None:
    """Refuses a batch of another shape than the net takes."""
    if tuple(shape[1:]) != manifest.input.shape[1:]:
        raise RequestError(f"the image has the shape {tuple(shape)}. {expected(manifest)}")


def expected(manifest: Manifest) -> str:
    """A sentence on what a model takes."""
    return f"Model {manifest.name!r} takes images of (batch, {', '.join(map(str, manifest.input.shape[1:]))}), uint8."


def decoded(text: Any) -> bytes:
    """The bytes of base64 text.

    Raises:
        RequestError: it is none.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RequestError(f'"b64" is not base64: {error}.') from None

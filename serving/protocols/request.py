"""The request that all wire formats are parsed into."""

import base64
import binascii
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import orjson

from serving import rows
from serving.errors import LimitError, RequestError
from serving.manifest import LARGEST_VERSION, SIGNATURE, Manifest

# Default limit of images in a request.
IMAGES = 256
# Values in a JSON body other than pixels.
_OTHER_VALUES = 10_000
# Bytes of a value in a message.
_QUOTED = 60


@dataclass(frozen=True)
class Request:
    """Images or rows to predict: inputs of the net, or image files of any size; the other one is None."""

    images: np.ndarray | None
    """uint8 `[n, height, width, channels]`; or rows, float32 `[n, columns]`."""
    files: list[bytes] | None
    """Files in a format that `serving.image_files` reads."""
    names: list[str] | None = None
    """Names of the files in messages; None numbers them."""
    segments: bool = False
    """True if each digit of a file is predicted too."""
    warnings: tuple[str, ...] = ()
    """Notes for the answer, such as unknown categories in rows."""


@dataclass(frozen=True)
class GrpcMessage:
    """A parsed message that asks for a prediction."""

    request: Request

    def without_images(self) -> Self:
        """Returns the request without its images, which formatting the response does not need."""
        return replace(self, request=Request(None, None))


def parse_version(text: str | None) -> int | None:
    """Parses the number of a version.

    Args:
        text: the number; clients of OpenVINO's model server write 0 for the newest version, others nothing.

    Returns:
        The number; None is the newest version.

    Raises:
        RequestError: it is not a number, or too large.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= LARGEST_VERSION):
        raise RequestError(f"a version is a positive integer up to {LARGEST_VERSION}. Received: {text!r}.")
    return int(text) or None


def signature_of(names: Iterable[str], manifest: Manifest) -> str:
    """Returns the signature of a TF Serving request that names none: the one with its inputs, or `serving_default`.

    Some clients, such as OpenVINO's, cannot name a signature, and could not send image files otherwise.

    Args:
        names: names of the inputs.
        manifest: manifest of the requested model.
    """
    given = list(names)
    return next((one for one, (name, _) in manifest.signatures.items() if given == [name]), SIGNATURE)


def parse_json(text: bytes, manifest: Manifest, images: int) -> Any:
    """Parses JSON.

    Args:
        text: the JSON.
        manifest: manifest of the requested model.
        images: maximum number of images or rows in a request.

    Raises:
        LimitError: it has far more values than that many images have pixels, or rows have columns, which would take
            gigabytes of memory.
        RequestError: it is malformed.
    """
    # Nested lists have a bracket for each image, row and pixel, and a comma for each value.
    shape = manifest.input.shape[1:]
    most = images * sum(math.prod(shape[:count]) for count in range(len(shape) + 1)) + _OTHER_VALUES
    if len(text) > most and sum(map(text.count, (b",", b"[", b"{"))) > most:
        values = f"{images} rows have" if manifest.is_table else f"{images} images have pixels"
        raise LimitError(f"the JSON has far more values than {values}. {expected(manifest)}")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}.") from None


def to_rows(given: Any, manifest: Manifest) -> Request:
    """Converts rows, as `serving.rows.encode` takes them, to a request.

    Raises:
        RequestError: see `serving.rows.encode`; or they are not a list.
    """
    if not isinstance(given, list):
        raise RequestError(f"the rows must be a list. {expected(manifest)}")
    found = rows.encode(given, manifest)
    return Request(found.values, None, warnings=found.warnings)


def to_pixels(values: list[Any], manifest: Manifest) -> np.ndarray:
    """Converts nested lists of pixels, one per image, to a batch.

    Raises:
        RequestError: they are not lists, not whole numbers from 0 to 255, or have another shape.
    """
    for number, value in enumerate(values, 1):
        if not isinstance(value, list):
            sizes = ", ".join(map(str, manifest.input.shape[1:]))
            raise RequestError(
                f"image {number} must be its pixels, as nested lists of shape ({sizes}). Received: "
                f"{orjson.dumps(value)[:_QUOTED].decode(errors='ignore')}."
            )
    # As objects: NumPy would otherwise make every string as long as the longest.
    found = np.array(values, object)
    kinds = set(map(type, found.ravel().tolist()))
    if list in kinds:
        raise RequestError(f"the rows of the image differ in length. {expected(manifest)}")
    if found.size == 0 and found.ndim <= 1:
        found = np.zeros((0, *manifest.input.shape[1:]), np.uint8)
    check_shape(found.shape, manifest)
    if not kinds <= {int, float}:
        raise RequestError(f"pixels must be numbers from 0 to 255. {expected(manifest)}")
    return cast(found.astype(np.float64), manifest)


def cast(numbers: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Converts pixels of any numeric type to uint8, without changing a value; or rows to float32.

    Args:
        numbers: integers or floating-point numbers of any shape.
        manifest: manifest of the requested model.

    Raises:
        RequestError: pixels are not whole numbers from 0 to 255, or see `serving.rows.check`.

    Example:
        cast(np.float32([[0, 127, 255]]), manifest)
    """
    if manifest.is_table:
        return rows.check(numbers, manifest)
    if numbers.dtype == np.uint8:
        return numbers
    # NaN fails too.
    if numbers.size and not (numbers.min() >= 0 and numbers.max() <= 255):
        raise RequestError(f"pixels must be numbers from 0 to 255. {expected(manifest)}")
    pixels = numbers.astype(np.uint8)
    if not np.array_equal(pixels, numbers):
        scaled = " They seem to be scaled to 1: multiply them by 255." if numbers.max() <= 1 else ""
        raise RequestError(f"pixels must be whole numbers, as in the file.{scaled} {expected(manifest)}")
    return pixels


def check_shape(shape: tuple[int, ...], manifest: Manifest) -> None:
    """Raises `RequestError` for a batch of another shape than the net takes."""
    if tuple(shape[1:]) != manifest.input.shape[1:]:
        raise RequestError(f"the {manifest.unit} has the shape {tuple(shape)}. {expected(manifest)}")


def expected(manifest: Manifest) -> str:
    """Returns a sentence about the input of a model."""
    if manifest.is_table:
        return rows.expected(manifest)
    return f"Model {manifest.name!r} takes images of (batch, {', '.join(map(str, manifest.input.shape[1:]))}), uint8."


def decode_base64(text: Any, where: str = '"b64"') -> bytes:
    """Decodes base64.

    Args:
        text: the file in base64.
        where: field of the request that has it, for messages.

    Raises:
        RequestError: the text is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RequestError(f"{where} is not base64: {error}.") from None

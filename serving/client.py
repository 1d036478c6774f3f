"""A Python client of the endpoint."""

import io
import json
import math
import os
import random
import re
import reprlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import numpy as np
from PIL import Image, ImageOps
from pydantic import TypeAdapter, ValidationError

from serving.errors import ImageError, ServingError
from serving.image_files import DEEP, refuse_unknown_range
from serving.schemas import Answer, ServedModel, VersionMetadata

# Statuses worth a retry.
BUSY = (429, 503)
# Seconds before the second attempt, unless Retry-After asks for more, and the longest pause before any attempt.
FIRST, LONGEST = 0.25, 30.0
_ANSWER, _MODELS = TypeAdapter(Answer), TypeAdapter(tuple[ServedModel, ...])
_METADATA = TypeAdapter(VersionMetadata)
T = TypeVar("T")
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")
# A whole file, or lists of pixels, would be a message of megabytes.
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 200
CHANNELS = (1, 3, 4)
# Pillow's modes that PNG can store, and those that keep the transparency of others.
PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
TRANSPARENT = {"La": "LA", "PA": "RGBA", "RGBa": "RGBA"}
# A path, the content of a file, or pixels.
ImageInput = str | os.PathLike[str] | bytes | Image.Image | np.ndarray
# Values by column, or in the order of the columns.
TableRow = Mapping[str, Any] | Sequence[Any] | np.ndarray


class ClientError(ServingError):
    """The endpoint cannot be reached, is busy, or refused a request.

    Args:
        message: the error.
        status: status of the response; None if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Sends requests to one endpoint. Keep the client: its connections stay open. Several threads may use it.

    A request is repeated if the endpoint is busy (429, 503) or the connection fails, which is safe because predictions
    have no side effects. Other errors are not retried, nor is a request without an answer in time: the endpoint may
    still compute it, and each repetition would add to its load.

    Args:
        url: URL of the endpoint.
        api_key: key of the endpoint, if it requires one.
        timeout: seconds without progress after which an attempt fails: while it connects, sends, or waits for a part of
            the answer. An attempt may take longer as a whole.
        attempts: maximum number of attempts. The pause between them starts at a quarter of a second and doubles each
            time, or is that of Retry-After if this is longer, up to half a minute; up to half of that is added at
            random, so that clients refused together do not return together.
        transport: replacement for the network, for tests.

    Raises:
        ClientError: the URL or the timeout is invalid, or no request can have the key.

    Example:
        with Client("http://127.0.0.1:8501") as client:
            client.predict("demo", ["seven.jpg"]).predictions[0].top[0].label
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = 30.0,
        attempts: int = 5,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {b"X-API-Key": _key(api_key)} if api_key else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise ClientError(f"{url} is not the address of an endpoint: {error}.") from None
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise ClientError(f"{url} is not the address of an endpoint. Expected one such as http://127.0.0.1:8501.")
        if timeout <= 0:
            raise ClientError(f"the timeout must be greater than 0 seconds. Received: {timeout:g}.")
        self._url = url
        self._timeout = timeout
        self._attempts = attempts

    def __enter__(self) -> Self:
        """Returns the client, which is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Closes the connections."""
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def predict(
        self,
        model: str,
        images: Sequence[ImageInput] | np.ndarray | None = None,
        *,
        rows: Sequence[TableRow] | None = None,
        version: int | None = None,
        label: str | None = None,
        top: int = 3,
        explain: bool = False,
        segments: bool = False,
    ) -> Answer:
        """Predicts the classes of images, or the classes or values of rows of a table.

        Args:
            model: its name.
            images: paths, contents of files, Pillow images, or arrays; sent in one request, so within the limits of
                the endpoint. An image is uint8 `[height, width]`, or `[height, width, channels]` with 1, 3 or 4
                channels; an array of several images has one more dimension.
            rows: rows of a table, in place of images: dicts of values by column, or lists in the order of the columns.
                None, NaN and columns that a dict leaves out are missing values; categories are given by name, dates as
                such, as ISO 8601 or as days since 1970.
            version: its number; None is the newest in service.
            label: label of a version, instead of its number.
            top: number of classes to return.
            explain: whether to return the mean gate of each layer.
            segments: whether to return each digit of an image, from left to right.

        Returns:
            The predictions, in the order of the images or rows.

        Raises:
            ClientError: an image or a row is invalid, or the endpoint cannot be reached, is busy at every attempt, or
                refuses.

        Example:
            client.predict("demo", [Path("seven.jpg"), Image.open("seven.jpg"), np.zeros((28, 28), np.uint8)], top=1)
            client.predict("houses", rows=[{"rooms": 4, "city": "Rome"}]).predictions[0].value
        """
        query = {"version": version, "label": label, "top": top}
        query |= {"explain": explain or None, "segments": segments or None}
        options: dict[str, Any] = {"params": {name: value for name, value in query.items() if value is not None}}
        if images is None and rows is not None:
            options |= {"content": _json(rows), "headers": {"Content-Type": "application/json"}}
        elif images is None or rows is not None:
            raise ClientError("give either images or rows.")
        elif isinstance(images, (str, os.PathLike, bytes, Image.Image)) or _is_one(images):
            raise ClientError(f"images must be a list. Received: {_shown(images)}. Put it in brackets.")
        else:
            options["files"] = [("picture", _file(image, number)) for number, image in enumerate(images)]
            if not options["files"]:
                raise ClientError("there are no images. Give at least one.")
        return self._request(_ANSWER, "POST", f"predict/{_quoted(model)}", **options)

    def models(self) -> tuple[ServedModel, ...]:
        """Returns the served models.

        Raises:
            ClientError: see `predict`.
        """
        return self._request(_MODELS, "GET", "models")

    def metadata(self, model: str, *, version: int | None = None, label: str | None = None) -> VersionMetadata:
        """Returns the columns and classes of a version, which may differ from those of the model's other versions.

        Args:
            model: its name.
            version: its number; None is the newest in service.
            label: label of a version, instead of its number.

        Raises:
            ClientError: see `predict`.

        Example:
            client.metadata("houses", version=1).metadata.columns[0].name  # "rooms"
        """
        path = f"v1/models/{_quoted(model)}"
        if version is not None:
            path += f"/versions/{version}"
        elif label is not None:
            path += f"/labels/{quote(label, safe='')}"
        return self._request(_METADATA, "GET", f"{path}/metadata")

    def _request(self, kind: TypeAdapter[T], method: str, path: str, **options: Any) -> T:
        wait = FIRST
        for left in reversed(range(self._attempts)):
            retry_after = 0.0
            try:
                answer = self._http.request(method, path, **options)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
                raise ClientError(f"{self._url} cannot be used: {error}.") from None
            except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout):
                raise ClientError(
                    f"{self._url} has not answered within {self._timeout:g} s. Send less in one request, or give the "
                    "client a longer timeout."
                ) from None
            except httpx.TransportError as error:
                if not left:
                    raise ClientError(
                        f"{self._url} cannot be reached: {_cause(error)}. Is the endpoint running?"
                    ) from None
            except httpx.RequestError as error:
                raise ClientError(
                    f"{self._url} does not answer like a highway-keras endpoint: {_cause(error)}. Is there a proxy?"
                ) from None
            else:
                if answer.is_success:
                    return self._read(kind, answer)
                if not left or answer.status_code not in BUSY:
                    raise ClientError(
                        f"{self._url} answered {answer.status_code}: {_error_message(answer)}", answer.status_code
                    )
                retry_after = _retry_after(answer.headers.get("retry-after", ""))
            time.sleep(min(max(wait, retry_after), LONGEST) * random.uniform(1.0, 1.5))
            wait *= 2
        raise ValueError(f"attempts must be at least 1. Received: {self._attempts}")

    def _read(self, kind: TypeAdapter[T], answer: httpx.Response) -> T:
        try:
            return kind.validate_json(answer.content)
        except ValidationError:
            raise ClientError(
                f"{self._url} does not answer like a highway-keras endpoint. It sent: {answer.text[:200]!r}",
                answer.status_code,
            ) from None


def _key(given: str) -> bytes:
    """Returns a key as the endpoint compares it; messages never quote it."""
    key, advice = given.strip(), "Set HIGHWAY_API_KEY, or api_key, to the key of the endpoint."
    if _UNSENDABLE.search(key):
        raise ClientError(f"the key has a character that cannot be sent in a header, such as a line break. {advice}")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise ClientError(f"the key is not UTF-8 text. {advice}") from None


def _quoted(model: str) -> str:
    """Returns the name of a model as part of a path."""
    # They change the path, and quoting does not help.
    if model in ("", ".", ".."):
        raise ClientError(f"{model!r} is not the name of a model. `Client.models` lists those that are served.")
    return quote(model, safe="")


def _file(image: ImageInput, number: int) -> tuple[str, bytes]:
    # The endpoint's messages about an image have its name.
    name = f"image {number + 1}"
    if isinstance(image, bytes | bytearray | memoryview):
        return name, bytes(image)
    if isinstance(image, Image.Image):
        return _printable(str(getattr(image, "filename", ""))) or name, _png(image, number)
    if isinstance(image, np.ndarray):
        return name, _png(_to_image(image, number), number)
    if not isinstance(image, str | os.PathLike):
        raise ClientError(
            f"{name} is {_shown(image)}. Expected a path, the content of a file, a Pillow image, or an array of uint8."
        )
    path = Path(image)
    try:
        return _printable(path), path.read_bytes()
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        # The path contains a null byte.
        raise ClientError(f"{str(path)!r} cannot be read: {error}.") from None


def _printable(path: str | Path) -> str:
    r"""Escapes bytes of a file's name that are not UTF-8 as \xe9: a request takes nothing else."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _json(rows: Sequence[TableRow]) -> bytes:
    if isinstance(rows, str | bytes | Mapping):
        raise ClientError(f"rows must be a list. Received: {_shown(rows)}. Put it in brackets.")
    found: list[Any] = []
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            found.append({str(name): _plain(value) for name, value in row.items()})
        elif isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes):
            found.append([_plain(value) for value in row])
        else:
            raise ClientError(f"row {number + 1} is {_shown(row)}. Expected a dict, or a list of values.")
    try:
        return json.dumps({"rows": found}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ClientError(f"a row has a value that cannot be sent: {error}.") from None


def _plain(value: Any) -> Any:
    """Converts a value to one that JSON has: a missing number or date is null there."""
    if isinstance(value, date | np.datetime64):
        text = str(value) if isinstance(value, np.datetime64) else value.isoformat()
        return None if text == "NaT" else text
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _is_one(images: object) -> bool:
    """Returns whether an array is one image."""
    return isinstance(images, np.ndarray) and (images.ndim < 3 or (images.ndim == 3 and images.shape[-1] in CHANNELS))


def _to_image(pixels: np.ndarray, number: int) -> Image.Image:
    grey = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = 1 if grey.ndim == 2 else grey.shape[-1]
    if pixels.dtype != np.uint8 or grey.ndim not in (2, 3) or channels not in CHANNELS or not pixels.size:
        raise ClientError(
            f"image {number + 1} is {_shown(pixels)}. Expected uint8 of (height, width), or of (height, width, "
            "channels) with 1, 3 or 4 channels."
        )
    return Image.fromarray(np.ascontiguousarray(grey))


def _png(image: Image.Image, number: int) -> bytes:
    """Encodes an image as PNG, without loss."""
    name, file = f"image {number + 1}", io.BytesIO()
    try:
        refuse_unknown_range(image, name)
        # Pillow writes PNG files without the EXIF orientation.
        shown = ImageOps.exif_transpose(image)
        if shown.mode in DEEP:
            # Without the integers in between, Pillow clips big-endian values to 255.
            shown = shown.convert("I").convert("I;16")
        storable = shown if shown.mode in PNG else shown.convert(TRANSPARENT.get(shown.mode, "RGB"))
        storable.save(file, "PNG")
    except ImageError as error:
        raise ClientError(str(error)) from None
    except (OSError, ValueError) as error:
        raise ClientError(f"{name} cannot be read: {error}.") from None
    return file.getvalue()


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"{_BRIEF.repr(value)} ({type(value).__name__})"


def _retry_after(header: str) -> float:
    """Returns the seconds of a Retry-After header, which may be a date; 0 if there are none."""
    if header.isascii() and header.isdecimal():
        return float(header)
    try:
        return (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


def _error_message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        # The client does not follow redirects: that would turn POST into GET, and may send the key elsewhere.
        if answer.has_redirect_location:
            return f"it is at {answer.headers['location'][:200]}. Give the client that address."
        return answer.text[:200] or answer.reason_phrase

"""A client of the endpoint, for programs in Python."""

import io
import os
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import numpy as np
from PIL import Image, ImageOps
from pydantic import TypeAdapter, ValidationError

from serving.answers import Answer, ServedModel
from serving.errors import ServingError

# Answers that may be another one a little later.
BUSY = (429, 503)
# Seconds to wait before the second attempt, if the endpoint does not say, and the most before any.
FIRST, LONGEST = 0.25, 30.0
_ANSWER, _MODELS = TypeAdapter(Answer), TypeAdapter(tuple[ServedModel, ...])
T = TypeVar("T")
CHANNELS = (1, 3, 4)
# What a PNG can hold, by Pillow's names.
PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
# A path, the bytes of a file, or pixels.
Picture = str | os.PathLike[str] | bytes | Image.Image | np.ndarray


class ClientError(ServingError):
    """The endpoint cannot be reached, is busy, or refused a request.

    Args:
        why: the message.
        status: of the answer; None if there was none.
    """

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


class Client:
    """Asks one endpoint; connections are kept open, so keep the client. May be used by several threads.

    A request is sent again where that can help: the endpoint is busy (429, 503), or the connection fails; a prediction
    changes nothing, so that one that was computed twice does no harm. What is refused for another reason is not.

    Args:
        url: of the endpoint.
        api_key: if it asks for one.
        timeout: seconds for one attempt.
        attempts: how often to ask. Between two attempts it waits as long as the endpoint says with Retry-After, and at
            least a quarter of a second and then twice as long each time, up to half a minute; and up to half as long
            again, so that clients that were sent away together do not come back together.
        transport: in place of the network, for tests.

    Raises:
        ClientError: the URL is none.

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
        headers = {"X-API-Key": api_key} if api_key else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise ClientError(f"{url} is no address of an endpoint: {error}.") from None
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise ClientError(f"{url} is no address of an endpoint. Expected one such as http://127.0.0.1:8501.")
        self._url = url
        self._attempts = attempts

    def __enter__(self) -> Self:
        """The client; it is closed at the end of the block."""
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
        pictures: Sequence[Picture] | np.ndarray,
        *,
        version: int | None = None,
        label: str | None = None,
        top: int = 3,
        explain: bool = False,
    ) -> Answer:
        """Classifies pictures.

        Args:
            model: its name.
            pictures: paths, bytes of files, pictures of Pillow's, or arrays; all in one request, so within the
                endpoint's limits. An array is uint8 `[height, width]`, or `[height, width, channels]` with 1, 3 or 4
                channels; an array of several has one dimension more.
            version: its number; None is the newest that is served.
            label: of a version, in its place.
            top: how many classes to name.
            explain: whether to give the mean gate of each layer.

        Returns:
            The predictions, in the order of the pictures.

        Raises:
            ClientError: one of the pictures is none, the endpoint cannot be reached, is busy at every attempt, or
                refuses.

        Example:
            client.predict("demo", [Path("seven.jpg"), Image.open("seven.jpg"), np.zeros((28, 28), np.uint8)], top=1)
        """
        if isinstance(pictures, (str, os.PathLike, bytes, Image.Image)) or _is_one(pictures):
            raise ClientError(f"pictures must be a list. Received: {_shown(pictures)}. Put it into brackets.")
        files = [("picture", _file(picture, number)) for number, picture in enumerate(pictures)]
        query = {"version": version, "label": label, "top": top, "explain": explain or None}
        given = {name: value for name, value in query.items() if value is not None}
        return self._asked(_ANSWER, "POST", f"predict/{quote(model, safe='')}", params=given, files=files)

    def models(self) -> tuple[ServedModel, ...]:
        """What the endpoint serves.

        Raises:
            ClientError: as for `predict`.
        """
        return self._asked(_MODELS, "GET", "models")

    def _asked(self, kind: TypeAdapter[T], method: str, path: str, **options: Any) -> T:
        wait = FIRST
        for left in reversed(range(self._attempts)):
            told = 0.0
            try:
                answer = self._http.request(method, path, **options)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
                raise ClientError(f"{self._url} cannot be asked: {error}.") from None
            except httpx.TransportError as error:
                if not left:
                    raise ClientError(
                        f"{self._url} cannot be reached: {_cause(error)}. Is the endpoint running?"
                    ) from None
            else:
                if answer.is_success:
                    return self._read(kind, answer)
                if not left or answer.status_code not in BUSY:
                    raise ClientError(f"{self._url} answered {answer.status_code}: {_why(answer)}", answer.status_code)
                told = _after(answer.headers.get("retry-after", ""))
            time.sleep(min(max(wait, told), LONGEST) * random.uniform(1.0, 1.5))
            wait *= 2
        raise ValueError(f"attempts must be at least 1. Received: {self._attempts}")

    def _read(self, kind: TypeAdapter[T], answer: httpx.Response) -> T:
        try:
            return kind.validate_json(answer.content)
        except ValidationError:
            raise ClientError(
                f"{self._url} does not answer as an endpoint of highway-keras does. It said: {answer.text[:200]!r}",
                answer.status_code,
            ) from None


def _file(picture: Picture, number: int) -> tuple[str, bytes]:
    if isinstance(picture, bytes | bytearray | memoryview):
        return str(number), bytes(picture)
    if isinstance(picture, Image.Image):
        return str(getattr(picture, "filename", "")) or str(number), _png(picture, number)
    if isinstance(picture, np.ndarray):
        return str(number), _png(_image(picture, number), number)
    if not isinstance(picture, str | os.PathLike):
        raise ClientError(
            f"picture {number + 1} is {_shown(picture)}. Expected a path, the bytes of a file, a picture of Pillow's, "
            "or an array of uint8."
        )
    path = Path(picture)
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        # A zero byte in its name.
        raise ClientError(f"{str(path)!r} cannot be read: {error}.") from None


def _is_one(pictures: object) -> bool:
    """Whether an array is a picture, and not several of them."""
    return isinstance(pictures, np.ndarray) and (
        pictures.ndim < 3 or (pictures.ndim == 3 and pictures.shape[-1] in CHANNELS)
    )


def _image(pixels: np.ndarray, number: int) -> Image.Image:
    grey = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = 1 if grey.ndim == 2 else grey.shape[-1]
    if pixels.dtype != np.uint8 or grey.ndim not in (2, 3) or channels not in CHANNELS or not pixels.size:
        raise ClientError(
            f"picture {number + 1} is {_shown(pixels)}. Expected uint8 of (height, width), or of (height, width, "
            "channels) with 1, 3 or 4 channels."
        )
    return Image.fromarray(np.ascontiguousarray(grey))


def _png(picture: Image.Image, number: int) -> bytes:
    """The same pixels as a file: nothing is lost."""
    file = io.BytesIO()
    try:
        # A PNG is written without the orientation.
        shown = ImageOps.exif_transpose(picture)
        (shown if shown.mode in PNG else shown.convert("RGB")).save(file, "PNG")
    except (OSError, ValueError) as error:
        raise ClientError(f"picture {number + 1} cannot be read: {error}.") from None
    return file.getvalue()


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"{value!r} ({type(value).__name__})"


def _after(told: str) -> float:
    """Seconds that a Retry-After asks for, given in seconds or as a date; 0 if it does not."""
    if told.isascii() and told.isdecimal():
        return float(told)
    try:
        return (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


def _why(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]

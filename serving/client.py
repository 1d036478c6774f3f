"""A client of the endpoint, for programs in Python."""

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2 as httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from serving.errors import ServingError

# Answers that may be another one a little later.
BUSY = (429, 503)


class Guess(BaseModel):
    """A class and how probable it is."""

    model_config = ConfigDict(frozen=True)
    label: str
    probability: float


class Prediction(BaseModel):
    """What a model says of one picture."""

    model_config = ConfigDict(frozen=True)
    top: tuple[Guess, ...]
    """The most probable classes, the first one first."""
    file: str | None = None
    """Name of the file that was sent."""
    gates: tuple[float, ...] | None = None
    """Mean gate of each layer, if it was asked for."""


class Answer(BaseModel):
    """Predictions, and the version that made them."""

    model_config = ConfigDict(frozen=True)
    model: str
    version: int
    predictions: tuple[Prediction, ...]
    layers: tuple[str, ...] | None = None
    """Names of the layers that `gates` are of."""


class ClientError(ServingError):
    """The endpoint cannot be reached, or refused a request."""


class Client:
    """Asks one endpoint; connections are kept open, so keep the client.

    Args:
        url: of the endpoint.
        api_key: if it asks for one.
        timeout: seconds for one attempt.
        attempts: how often to ask an endpoint that is busy or cannot be reached; between two attempts it waits as long
            as the endpoint says, or from a quarter of a second on twice as long each time.

    Example:
        with Client("http://127.0.0.1:8501") as client:
            client.predict("demo", [Path("seven.png")]).predictions[0].top[0].label
    """

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 30.0, attempts: int = 5) -> None:
        headers = {"X-API-Key": api_key} if api_key else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, ValueError) as error:
            raise ClientError(f"{url} is no address of an endpoint: {error}.") from None
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
        pictures: Sequence[Path | bytes],
        *,
        version: int | None = None,
        label: str | None = None,
        top: int = 3,
        explain: bool = False,
    ) -> Answer:
        """Classifies pictures.

        Args:
            model: its name.
            pictures: files, or their bytes.
            version: its number; None is the newest that is served.
            label: of a version, in its place.
            top: how many classes to name.
            explain: whether to give the mean gate of each layer.

        Returns:
            The predictions, in the order of the pictures.

        Raises:
            ClientError: a file cannot be read, the endpoint cannot be reached, is busy at every attempt, or refuses.
        """
        files = [("picture", _file(picture, number)) for number, picture in enumerate(pictures)]
        query = {"version": version, "label": label, "top": top, "explain": explain or None}
        given = {name: value for name, value in query.items() if value is not None}
        answer = self._asked("POST", f"/predict/{model}", params=given, files=files)
        try:
            return Answer.model_validate_json(answer.content)
        except ValidationError as error:
            raise ClientError(f"{self._url} does not answer as an endpoint of highway-keras does: {error}") from None

    def models(self) -> list[Mapping[str, Any]]:
        """What the endpoint serves: name, versions, labels and input of each model."""
        return self._asked("GET", "/models").json()

    def _asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        wait = 0.25
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if last:
                    raise ClientError(f"{self._url} cannot be reached: {error}. Is the endpoint running?") from None
                answer = None
            if answer is not None and answer.is_success:
                return answer
            if answer is not None and (last or answer.status_code not in BUSY):
                raise ClientError(f"{self._url} answered {answer.status_code}: {_why(answer)}")
            told = answer.headers.get("retry-after", "") if answer is not None else ""
            # Not all clients that were sent away at the same time shall come back at the same time.
            time.sleep((float(told) if told.isdecimal() else wait) * random.uniform(1.0, 1.5))
            wait *= 2
        raise AssertionError("the last attempt returns or raises")


def _file(picture: Path | bytes, number: int) -> tuple[str, bytes]:
    if isinstance(picture, bytes):
        return str(number), picture
    try:
        return str(picture), picture.read_bytes()
    except OSError as error:
        raise ClientError(f"{picture} cannot be read: {error.strerror}.") from None


def _why(answer: httpx.Response) -> str:
    try:
        return answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]

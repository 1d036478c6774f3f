"""TF Serving over REST, with pixels as lists of numbers: slower than gRPC."""

import asyncio
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import numpy as np
import orjson

from serving.errors import GoneError, UnavailableError
from serving.manifest import SIGNATURE
from serving.tf_serving.connection import input_name, refused


class RestConnection:
    """A `serving.tf_serving.connection.Connection`.

    Args:
        address: http://HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        # `_request` limits the time of a whole request.
        self._http = httpx.AsyncClient(base_url=address, timeout=None)

    async def state(self, model: str, version: int, timeout: float) -> str:
        """Returns the state of a version."""
        answer = await self._request("GET", _path(model, version), timeout)
        try:
            return next(one["state"] for one in answer["model_version_status"] if one["version"] == str(version))
        except (KeyError, TypeError, StopIteration):
            raise refused(self.address, f"it knows no version {version} of model {model!r}") from None

    async def predict(
        self, model: str, version: int, images: np.ndarray, outputs: tuple[str, ...], timeout: float
    ) -> dict[str, np.ndarray]:
        """Predicts a batch."""
        request = {"signature_name": SIGNATURE, "inputs": {input_name(images): np.ascontiguousarray(images)}}
        if images.dtype == np.uint8:
            body = orjson.dumps(request, option=orjson.OPT_SERIALIZE_NUMPY)
        else:
            # TF Serving reads NaN, a missing number, but not null, which orjson writes in its place.
            body = json.dumps(request, default=np.ndarray.tolist).encode()
        answer = await self._request("POST", f"{_path(model, version)}:predict", timeout, content=body)
        try:
            found = answer["outputs"]
            if isinstance(found, list):
                # TF Serving leaves out the name of a lone output.
                (name,) = outputs
                found = {name: found}
            return {name: np.array(found[name], np.float32) for name in outputs}
        except (KeyError, TypeError, ValueError) as error:
            raise refused(self.address, f"model {model!r} returned malformed outputs ({error!r})") from None

    async def close(self) -> None:
        """Closes it."""
        await self._http.aclose()

    async def _request(self, method: str, path: str, timeout: float, **options: Any) -> Any:
        try:
            async with asyncio.timeout(timeout):
                answer = await self._http.request(method, path, **options)
        except httpx.RequestError as error:
            raise refused(self.address, str(error) or type(error).__name__) from None
        try:
            content = _json(answer.content)
        except ValueError:
            raise refused(self.address, f"status {answer.status_code} and a body that is not JSON") from None
        if not answer.is_success:
            message = content.get("error") if isinstance(content, dict) else None
            kind = GoneError if answer.status_code == HTTPStatus.NOT_FOUND else UnavailableError
            raise refused(self.address, message or f"status {answer.status_code}", kind)
        return content


def _json(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        # TF Serving writes NaN, which is not JSON but is accepted by Python's own parser.
        return json.loads(content)


def _path(model: str, version: int) -> str:
    return f"/v1/models/{quote(model, safe='')}/versions/{version}"

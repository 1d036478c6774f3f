"""TF Serving over gRPC, with pixels as raw bytes."""

from collections.abc import Awaitable
from typing import Any

import grpc
import numpy as np

from serving.errors import GoneError, UnavailableError
from serving.manifest import SIGNATURE
from serving.messages import tf_serving as messages
from serving.tf_serving.connection import input_name, refused

# Reconnects within a second; gRPC's own pauses grow to two minutes.
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", -1),
)


class GrpcConnection:
    """A `serving.tf_serving.connection.Connection`.

    Args:
        address: HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, _OPTIONS)
        self._predict = self._channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict",
            messages.PredictRequest.SerializeToString,
            messages.PredictResponse.FromString,
        )
        self._state = self._channel.unary_unary(
            "/tensorflow.serving.ModelService/GetModelStatus",
            messages.GetModelStatusRequest.SerializeToString,
            messages.GetModelStatusResponse.FromString,
        )

    async def state(self, model: str, version: int, timeout: float) -> str:
        """Returns the state of a version."""
        request = messages.GetModelStatusRequest()
        _specify(request, model, version)
        answer = await self._answer(self._state(request, timeout=timeout))
        for one in answer.model_version_status:
            if one.version == version:
                return messages.STATES.get(one.state, "UNKNOWN")
        raise refused(self.address, f"it knows no version {version} of model {model!r}")

    async def predict(
        self, model: str, version: int, images: np.ndarray, outputs: tuple[str, ...], timeout: float
    ) -> dict[str, np.ndarray]:
        """Predicts a batch."""
        request = messages.PredictRequest(output_filter=outputs)
        _specify(request, model, version)
        request.model_spec.signature_name = SIGNATURE
        request.inputs[input_name(images)].CopyFrom(messages.tensor(images))
        answer = await self._answer(self._predict(request, timeout=timeout))
        try:
            # Indexing a map of messages would add missing keys.
            return {name: messages.array(dict(answer.outputs)[name]) for name in outputs}
        except (KeyError, ValueError) as error:
            raise refused(self.address, f"model {model!r} returned malformed outputs ({error})") from None

    async def close(self) -> None:
        """Closes it."""
        await self._channel.close()

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError from None
            kind = GoneError if error.code() == grpc.StatusCode.NOT_FOUND else UnavailableError
            raise refused(self.address, f"{error.code().name}, {error.details()}", kind) from None


def _specify(request: Any, model: str, version: int) -> None:
    request.model_spec.name = model
    request.model_spec.version.value = version

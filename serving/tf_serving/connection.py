"""The interface to a TF Serving server, for both of its protocols."""

from typing import Any, Protocol

import numpy as np

from serving.errors import UnavailableError
from serving.inputs import INPUT, ROW

AVAILABLE = "AVAILABLE"


class Connection(Protocol):
    """A connection to a server; used from the event loop that opened it."""

    address: str
    """Address of the server, for messages."""

    async def state(self, model: str, version: int, timeout: float) -> str:
        """Returns the state of a version: START, LOADING, AVAILABLE, UNLOADING or END.

        Args:
            model: its name.
            version: its number.
            timeout: seconds to wait for the answer.

        Raises:
            UnavailableError: the server cannot be reached, or knows no such version.
            TimeoutError: it does not answer in time.
        """

    async def predict(
        self, model: str, version: int, images: np.ndarray, outputs: tuple[str, ...], timeout: float
    ) -> dict[str, np.ndarray]:
        """Predicts a batch.

        Args:
            model: its name.
            version: its number.
            images: uint8 `[batch, height, width, channels]`, or rows, float32 `[batch, columns]`; at least one.
            outputs: names of the outputs to return, all of them float32.
            timeout: seconds to wait for the answer.

        Raises:
            GoneError: the server does not have the version.
            UnavailableError: the server cannot be reached, refuses, or answers without these outputs.
            TimeoutError: it does not answer in time.
        """

    async def close(self) -> None:
        """Closes it; pending requests get no answer."""


def input_name(batch: np.ndarray) -> str:
    """Returns the name of the input that takes a batch."""
    return INPUT if batch.dtype == np.uint8 else ROW


def refused(address: str, reason: Any, kind: type[UnavailableError] = UnavailableError) -> UnavailableError:
    """Returns the error for a server that cannot be reached or refuses a request."""
    return kind(f"TF Serving at {address} does not answer as expected: {reason}. Try again later.")

"""What is asked of a TF Serving server, by either of its two protocols."""

from typing import Any, Protocol

import numpy as np

from serving.errors import UnavailableError

AVAILABLE = "AVAILABLE"


class Connection(Protocol):
    """An open way to a server; used from the event loop that it was opened on."""

    address: str
    """Of the server, for messages."""

    async def state(self, model: str, version: int, timeout: float) -> str:
        """State of a version: START, LOADING, AVAILABLE, UNLOADING or END.

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
        """Outputs of a version for a batch.

        Args:
            model: its name.
            version: its number.
            images: uint8 `[batch, height, width, channels]`, at least one.
            outputs: names of those that are wanted, all of them float32.
            timeout: seconds to wait for the answer.

        Raises:
            GoneError: the server does not have the version.
            UnavailableError: the server cannot be reached, refuses, or answers without these outputs.
            TimeoutError: it does not answer in time.
        """

    async def close(self) -> None:
        """Ends it; whoever still waits for an answer gets none."""


def refused(address: str, why: Any, kind: type[UnavailableError] = UnavailableError) -> UnavailableError:
    """What is raised when a server cannot be reached, or does not do what it was asked."""
    return kind(f"TF Serving at {address} does not answer as it should: {why}. Try again later.")

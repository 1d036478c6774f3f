"""Errors of model versions, images and requests."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class ServingError(Exception):
    """One message without a stack trace: what happened, what was expected, what to do."""


class ModelError(ServingError):
    """A model version is missing, incomplete or damaged."""


class UnavailableError(ModelError):
    """The backend of a version cannot be reached or does not have it yet; a later attempt may succeed."""


class LoadingError(UnavailableError):
    """A version is being tried in the background; a later call of `open` has the outcome."""


class GoneError(UnavailableError):
    """The backend answers, but no longer has the version."""


class RefusedError(ModelError):
    """The model is in the repository, but the requested version of it, or every version, was refused."""


class DrainingError(ModelError):
    """The endpoint is about to stop, and asks for no more requests."""

    def __init__(self) -> None:
        super().__init__("the endpoint is about to stop.")


class SmokeTestError(ServingError):
    """Opening a version or a first prediction failed, crashed, or took too long."""


class TrialTimeoutError(SmokeTestError):
    """Opening a version and a first prediction took too long."""


class UnknownModelError(ServingError):
    """No model, version, label or sample image of that name is served."""


class RequestError(ServingError):
    """A request does not fit the protocol or the model."""


class OutputError(ServingError):
    """A model computed what cannot be an answer, or nothing.

    Args:
        fault: which version computed what.
    """

    def __init__(self, fault: str) -> None:
        # Pickling passes the same arguments again.
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        """Returns the message of a request."""
        return f"{self.fault}. The model is at fault, not the request: serve another version."


class ImageError(ServingError):
    """An image is missing, unreadable, or not accepted by the model."""


class LimitError(ServingError):
    """A request exceeds a limit."""


class SlowError(ServingError):
    """A prediction exceeded the time limit."""


class BusyError(ServingError):
    """A queue is full.

    Args:
        message: the reason.
        after: seconds after which a retry makes sense.
    """

    def __init__(self, message: str, after: float) -> None:
        self.after = max(after, 0.1)
        super().__init__(f"{message} Try again in {self.after:.1f} s.")


def in_bytes(size: int) -> str:
    """Returns a size as messages give it: 1 byte, 1,024 bytes."""
    return f"{size:,} byte{'' if size == 1 else 's'}"


def in_brackets(shape: Iterable[int | None]) -> str:
    """Returns a shape as messages give it, with n for any size: [n, 28, 28, 1]."""
    return f"[{', '.join('n' if size is None else str(size) for size in shape)}]"


def first_fault(error: "ValidationError") -> tuple[str, str]:
    """Returns the place and the message of the first fault that pydantic found; the place of all of it is empty."""
    first = error.errors()[0]
    # The prefix is pydantic's, of the messages that validators raise.
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")


def damage(error: "ValidationError") -> str:
    """Returns what is wrong with a file, such as "is damaged: labels: Input should be ...", by its first fault."""
    where, fault = first_fault(error)
    if where:
        return f"is damaged: {where}: {fault}"
    return f"{'contradicts itself' if error.errors()[0]['type'] == 'value_error' else 'is damaged'}: {fault}"

"""Answers to errors: their status, message and kind."""

import logging
import re

from serving import errors

log = logging.getLogger(__name__)
# Maximum number of characters in an error message.
QUOTED = 2000
FAILED = "the endpoint failed. Its log has the reason."
STATUS = {
    errors.UnknownModelError: 404,
    errors.RequestError: 400,
    errors.ImageError: 400,
    errors.LimitError: 413,
    errors.OutputError: 500,
    errors.BusyError: 503,
    errors.SlowError: 504,
    errors.ModelError: 503,
    errors.DrainingError: 503,
}
# Name of each of these errors in metrics and logs: "unknown_model", "request", "image"...
KINDS = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower() for kind in STATUS}


def kind_of(error: Exception) -> str:
    """Returns the name of an error in metrics and logs; "failed" for a bug."""
    return next((KINDS[kind] for kind in type(error).__mro__ if kind in KINDS), "failed")


def _status(error: Exception) -> int:
    """Returns the HTTP status of an error, by its class or a base class; 0 for a bug."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 0)


def refusal(error: Exception) -> tuple[int, str, float]:
    """Returns the answer to an error: HTTP status, message, and the seconds after which a retry makes sense, if any.

    Args:
        error: an error of this endpoint, or a bug, which is logged.
    """
    status = _status(error)
    if not status:
        log.error("a request failed", exc_info=error)
        return 500, FAILED, 0.0
    if status == 500 and error.__cause__:
        # A graph failed, which may have had other reasons than the model.
        log.error("a prediction failed", exc_info=error)
    message = str(error)
    # Some messages quote the request, which may be megabytes long.
    message = message if len(message) <= QUOTED else f"{message[:QUOTED]}..."
    return status, message, getattr(error, "after", 1.0) if status == 503 else 0.0

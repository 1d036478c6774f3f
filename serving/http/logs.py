"""The log: one JSON object per line."""

import logging
import sys
import time
from functools import lru_cache

import orjson

from serving.tracing import request_id

# Attributes of every record; the others were passed as `extra`.
_COMMON = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure_log(*, quiet: bool) -> None:
    """Logs requests and changes of versions to standard error.

    Args:
        quiet: whether to leave out requests.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # httpx2 logs each request to TF Serving.
    for name in ("uvicorn", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if quiet:
        logging.getLogger("highway.access").setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """Formats time, level, message, `extra`, the id of the request being answered and the stack trace of a record.

    Example:
        handler.setFormatter(JsonFormatter())
        log.info("version loaded", extra={"model": "digits", "version": 2})
        # {"time":"2030-01-01T00:00:00.000Z","level":"info","message":"version loaded","model":"digits","version":2}
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        fields = vars(record)
        line = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: fields[name] for name in sorted(fields.keys() - _COMMON)},
        }
        if answering := request_id.get():
            line["request_id"] = answering
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            # An integer of more than 64 bits, or a name that is not UTF-8: a line must not end the request it is about.
            escaped = {name: str(value).encode(errors="backslashreplace").decode() for name, value in line.items()}
            return orjson.dumps(escaped).decode()


@lru_cache(1)
def _second(created: int) -> str:
    # Most lines fall in the same second as the line before.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))

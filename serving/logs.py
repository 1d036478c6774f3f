"""The log: one JSON object a line."""

import logging
import time
from functools import lru_cache

import orjson

# What every record has; the rest was given as `extra`.
_COMMON = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """Time, level and message of a record, what was given as `extra`, and the stack trace of an exception.

    Example:
        handler.setFormatter(JsonFormatter())
        log.info("version loaded", extra={"model": "digits", "version": 2})
        # {"time":"2030-01-01T00:00:00.000Z","level":"info","message":"version loaded","model":"digits","version":2}
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        given = vars(record)
        line = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: given[name] for name in sorted(given.keys() - _COMMON)},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


@lru_cache(1)
def _second(created: int) -> str:
    # Most lines are of the second of the line before.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))

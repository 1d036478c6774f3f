"""The log: one JSON object a line."""

import logging
from datetime import UTC, datetime

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
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _COMMON},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()

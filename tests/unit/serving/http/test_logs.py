import json
import logging
import sys

import pytest

from serving.http.logs import JsonFormatter


def line(**fields):
    return json.loads(
        JsonFormatter().format(logging.makeLogRecord({"created": 0.0, "msecs": 7.9, "levelname": "INFO", **fields}))
    )


def test_a_line_has_the_given_fields():
    found = line(msg="version %s", args=("2",), model="digits", path=b"odd")
    assert found == {
        "time": "1970-01-01T00:00:00.007Z", "level": "info", "message": "version 2", "model": "digits",
        "path": "b'odd'",
    }  # fmt: skip


@pytest.mark.parametrize("odd", [2**64, "caf\udce9", {(1, 2): 3}])
def test_a_line_is_written_whatever_it_holds(odd):
    found = line(msg="refused", model="digits", odd=odd)
    assert (found["message"], found["model"]) == ("refused", "digits")
    assert found["odd"] == str(odd).replace("\udce9", r"\udce9")


def test_an_exception_keeps_its_trace():
    try:
        raise ValueError("bad\nline")
    except ValueError:
        found = JsonFormatter().format(logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()}))
    assert "\n" not in found
    assert "ValueError: bad" in json.loads(found)["exception"]

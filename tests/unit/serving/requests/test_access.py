"""Sizes of requests, counted without a server."""

from pathlib import Path

import pytest

from serving.engine.settings import Settings
from serving.errors import BusyError, LimitError
from serving.keys import Keys
from serving.requests.access import AccessControl
from serving.tracing import Tracing


@pytest.mark.parametrize(("rate", "said"), [(1.0, "1 request per second."), (2.5, "2.5 requests per second.")])
def test_a_rate_is_named(rate, said):
    access = AccessControl(Settings(Path("models"), rate=rate), Keys("secret"), Tracing(), dict)
    headers = {b"x-api-key": b"secret"}
    while not (denial := access.deny(headers, access.begin(headers), is_open=False)):
        pass
    assert (denial.status, said in denial.reason) == (429, True)


def test_a_request_is_freed_while_the_others_are_still_too_large_together():
    access = AccessControl(Settings(Path("models"), body=8, bodies=10), Keys(), Tracing(), dict)

    def leave(size):
        record = access.begin({})
        access.enter()
        access.leave(record, size, method="POST", path="/", route="/", model="", status=200, client="")

    access.count(8, 8)
    for _ in range(2):
        with pytest.raises(BusyError):
            access.count(4, 4)
    leave(4)
    with pytest.raises(BusyError):
        access.count(1, 1)
    leave(4)
    leave(1)
    access.count(2, 2)
    with pytest.raises(LimitError, match="has 9 bytes, more than the limit of 8"):
        access.count(1, 9)

"""The client, without a network and without waiting."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2 as httpx
import pytest

from serving import client as module
from serving.client import Client, ClientError

ANSWER = {"model": "digits", "version": 2, "predictions": [{"top": [{"label": "7", "probability": 0.9}], "file": "a"}]}
REFUSED = {"error": "the picture is none."}


class Endpoint:
    """Answers in turn what it is given: a status with what may be in the head, or an error of the transport."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        return httpx.Response(status, headers=headers, json=ANSWER if status == 200 else REFUSED)


@pytest.fixture
def waits(monkeypatch):
    """What it would have slept; jitter is none."""
    found = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    monkeypatch.setattr(module.random, "uniform", lambda low, high: low)
    return found


def made(*answers, url="http://here", **options):
    endpoint = Endpoint(*answers)
    return Client(url, transport=httpx.MockTransport(endpoint), **options), endpoint


def test_what_is_asked_and_answered(waits, tmp_path):
    (tmp_path / "a.png").write_bytes(b"first")
    client, endpoint = made(200, url="http://here/below", api_key="k")
    with client:
        answer = client.predict("a/ö", [tmp_path / "a.png", b"second"], version=2, top=5, explain=True)
    assert answer.predictions[0].top[0].label == "7"
    (request,) = endpoint.requests
    assert request.url.raw_path == b"/below/predict/a%2F%C3%B6?version=2&top=5&explain=true"
    assert request.headers["x-api-key"] == "k"
    assert b"first" in request.content
    assert b"second" in request.content
    assert waits == []


def test_it_comes_back_to_a_busy_endpoint_each_time_later(waits):
    client, endpoint = made(503, 429, httpx.ConnectError("refused"), httpx.ReadError("reset"), 200)
    assert client.predict("digits", [b"x"]).version == 2
    assert waits == [0.25, 0.5, 1.0, 2.0]
    assert len({request.content for request in endpoint.requests}) == 1 or len(endpoint.requests) == 5


def test_it_waits_as_long_as_the_endpoint_says(waits):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=20), usegmt=True)
    answers = [(503, {"retry-after": said}) for said in ("3", later, past, "999999", "soon")]
    client, _ = made(*answers, 200, attempts=6)
    client.predict("digits", [b"x"])
    assert waits == [3.0, pytest.approx(19.5, abs=1), 1.0, 30.0, 4.0]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 500, 504])
def test_what_cannot_succeed_is_not_tried_again(waits, status):
    client, endpoint = made(status)
    with pytest.raises(ClientError, match=rf"answered {status}: the picture is none") as caught:
        client.predict("digits", [b"x"])
    assert (caught.value.status, len(endpoint.requests), waits) == (status, 1, [])


def test_it_gives_up_in_the_end(waits):
    client, endpoint = made(503, attempts=3)
    with pytest.raises(ClientError, match="answered 503"):
        client.predict("digits", [b"x"])
    assert (len(endpoint.requests), len(waits)) == (3, 2)
    client, endpoint = made(httpx.ConnectError("refused"), attempts=2)
    with pytest.raises(ClientError, match=r"cannot be reached: refused\. Is the endpoint running"):
        client.predict("digits", [b"x"])
    assert len(endpoint.requests) == 2


def test_jitter(monkeypatch):
    found = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    for _ in range(20):
        client, _ = made(503, 200)
        client.predict("digits", [b"x"])
    assert all(0.25 <= wait <= 0.375 for wait in found)
    assert len(set(found)) > 10


@pytest.mark.parametrize("url", ["", "here", "localhost:80", "ftp://here", "http://", "http://here:port"])
def test_what_is_no_address(url):
    with pytest.raises(ClientError, match="is no address of an endpoint"):
        Client(url)


def test_other_servers_and_missing_files(waits, tmp_path):
    def page(_):
        return httpx.Response(200, text="<html>Welcome</html>")

    with pytest.raises(ClientError, match=r"does not answer as an endpoint of highway-keras does.*Welcome"):
        Client("http://here", transport=httpx.MockTransport(page)).predict("digits", [b"x"])
    with pytest.raises(ClientError, match="answered 502: <html>"):
        Client("http://here", transport=httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))).models()
    client, endpoint = made(200)
    with pytest.raises(ClientError, match=r"nothing\.png cannot be read"):
        client.predict("digits", [tmp_path / "nothing.png"])
    assert endpoint.requests == []

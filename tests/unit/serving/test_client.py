"""The client, without a network and without waiting."""

import io
import json
import os
import re
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image

from serving import client as module
from serving.client import Client, ClientError

ANSWER = {"model": "digits", "version": 2, "predictions": [{"top": [{"label": "7", "probability": 0.9}], "file": "a"}]}
REFUSED = {"error": "the image is empty."}


class Endpoint:
    """Gives these answers in turn: a status, optionally with headers, or an error of the transport."""

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
    """The pauses of the client, which does not sleep and adds no jitter."""
    found = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    monkeypatch.setattr(module.random, "uniform", lambda low, high: low)
    return found


def made(*answers, url="http://here", **options):
    endpoint = Endpoint(*answers)
    return Client(url, transport=httpx.MockTransport(endpoint), **options), endpoint


def test_images_without_a_name_are_numbered_as_in_messages(waits):
    client, endpoint = made(200, api_key="k\n")
    client.predict("digits", [b"first", np.zeros((2, 2), np.uint8), Image.new("L", (2, 2))])
    (request,) = endpoint.requests
    assert re.findall(rb'filename="([^"]*)"', request.content) == [b"image 1", b"image 2", b"image 3"]
    assert request.headers["x-api-key"] == "k"


def test_a_request_and_its_answer(waits, tmp_path):
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


@pytest.mark.parametrize(
    ("given", "path"),
    [({}, ""), ({"version": 2}, "/versions/2"), ({"label": "a/b"}, "/labels/a%2Fb")],
)
def test_the_metadata_of_a_version(given, path):
    requests, answer = [], {"columns": [{"name": "rooms", "categories": None}], "target": "sold", "classes": ["no"]}

    def endpoint(request):
        requests.append(request)
        spec = {"name": "a/ö", "signature_name": "", "version": str(2**53)}
        return httpx.Response(200, json={"model_spec": spec, "metadata": {"signature_def": {}, **answer}})

    found = Client("http://here", transport=httpx.MockTransport(endpoint)).metadata("a/ö", **given)
    assert (found.model_spec.version, found.metadata.classes) == (2**53, ("no",))
    (request,) = requests
    assert (request.method, request.url.raw_path.decode()) == ("GET", f"/v1/models/a%2F%C3%B6{path}/metadata")


def sent(request):
    """Returns the images in a form, by name."""
    parts = request.content.split(b"--" + request.headers["content-type"].partition("boundary=")[2].encode())[1:-1]
    found = {}
    for part in parts:
        head, _, body = part.partition(b"\r\n\r\n")
        found[re.search(rb'filename="(.*?)"', head)[1].decode()] = np.asarray(Image.open(io.BytesIO(body[:-2])))
    return found


def test_images_of_all_kinds(waits, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype="uint8")
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    turned = Image.fromarray(pixels)
    turned.getexif()[274] = 6  # to be shown a quarter turn to the right
    client, endpoint = made(200)
    with Image.open(path) as opened:
        given = [str(path), path.read_bytes(), opened, turned, pixels, pixels[..., 0], pixels[..., :1]]
        client.predict("digits", given)
    grey = pixels[..., 0]
    expected = [pixels] * 3 + [np.rot90(pixels, -1), pixels, grey, grey]
    found = sent(endpoint.requests[0])
    # The image that was opened from the path has its name.
    assert list(found) == [str(path), *(f"image {number}" for number in (2, 4, 5, 6, 7))]
    for one, other in zip(found.values(), expected[:2] + expected[3:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "<u2"), ("I;16L", "<u2"), ("I;16B", ">u2")])
def test_grey_of_16_bits_is_sent_without_loss(waits, mode, kind):
    pixels = np.uint16([[0, 255, 256], [1234, 40_000, 65_535]])
    image = Image.frombytes(mode, (3, 2), pixels.astype(kind).tobytes())
    client, endpoint = made(200)
    client.predict("digits", [image])
    np.testing.assert_array_equal(sent(endpoint.requests[0])["image 1"], pixels)


def test_transparency_is_sent(waits):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 4, 4), dtype="uint8"))
    palette = image.convert("P").convert("PA")
    palette.putalpha(image.getchannel("A"))
    given = {"RGBA": image.convert("RGBa"), "LA": image.convert("LA").convert("La")}
    expected = [*(one.convert(mode) for mode, one in given.items()), palette.convert("RGBA")]
    client, endpoint = made(200)
    client.predict("digits", [*given.values(), palette])
    for one, other in zip(sent(endpoint.requests[0]).values(), expected, strict=True):
        np.testing.assert_array_equal(one, np.asarray(other))
        assert len(np.unique(one[..., -1])) > 10


def test_a_pgm_file_of_16_bits_is_sent_without_loss(waits, tmp_path):
    path, pixels = tmp_path / "a.pgm", np.uint16([[0, 255, 256], [1234, 40_000, 65_535]])
    Image.fromarray(pixels).save(path)
    client, endpoint = made(200)
    with Image.open(path) as image:
        client.predict("digits", [image])
    np.testing.assert_array_equal(sent(endpoint.requests[0])[str(path)], pixels)


@pytest.mark.parametrize("shape", [(2, 5, 6), (2, 5, 6, 1), (2, 5, 6, 3)])
def test_an_array_of_several_images(waits, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype="uint8")
    client, endpoint = made(200)
    client.predict("digits", pixels)
    for one, other in zip(sent(endpoint.requests[0]).values(), pixels, strict=True):
        np.testing.assert_array_equal(one, other[..., 0] if shape[-1] == 1 else other)


@pytest.mark.parametrize(
    ("images", "why"),
    [
        ("seven.jpg", r"must be a list\. Received: 'seven\.jpg' \(str\)\. Put it in brackets"),
        (b"x", "must be a list"),
        (bytes(10_000_000), r"must be a list\. Received: b'.{100,300} \(bytes\)\. Put it in brackets\.$"),
        (np.zeros((28, 28), "uint8"), r"must be a list\. Received: an array of uint8 and shape \(28, 28\)"),
        (np.zeros((28, 28, 1), "uint8"), "must be a list"),
        ([], "there are no images. Give at least one"),
        (np.zeros((0, 28, 28), "uint8"), "there are no images"),
        (["nothing\0.png"], "cannot be read"),
        ([b"x", 7], r"image 2 is 7 \(int\)\. Expected a path"),
        ([np.zeros((28, 28))], r"image 1 is an array of float64 and shape \(28, 28\)\. Expected uint8"),
        ([np.zeros((28, 28, 2), "uint8")], "with 1, 3 or 4 channels"),
        ([np.zeros((0, 28), "uint8")], "Expected uint8"),
        ([b"x", Image.new("F", (2, 2))], "image 2 has floating-point pixels, whose black and white are unknown"),
        ([Image.new("I", (2, 2))], "image 1 has pixels of 32 bits or with a sign, .* Save it with 8 or 16 bits"),
    ],
)
def test_invalid_images_are_refused(waits, images, why):
    client, endpoint = made(200)
    with pytest.raises(ClientError, match=why):
        client.predict("digits", images)
    assert endpoint.requests == []


def test_rows_are_sent_as_json(waits):
    client, endpoint = made(200)
    given = [{"rooms": np.float32(4), "city": "Rome", "age": float("nan")}, [4, None, "Rome"], np.array([1.5, 2])]
    given.append([date(2026, 11, 26), np.datetime64("2026-11-26T12:00"), np.datetime64("NaT")])
    client.predict("houses", rows=given, explain=True)
    (request,) = endpoint.requests
    assert request.url.raw_path == b"/predict/houses?top=3&explain=true"
    assert request.headers["content-type"] == "application/json"
    rows = [{"rooms": 4, "city": "Rome", "age": None}, [4, None, "Rome"], [1.5, 2]]
    rows.append(["2026-11-26", "2026-11-26T12:00", None])
    assert json.loads(request.content) == {"rows": rows}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "give either images or rows"),
        ({"images": [b"x"], "rows": [{}]}, "give either images or rows"),
        ({"rows": {"rooms": 4}}, r"rows must be a list\. Received: .* \(dict\)\. Put it in brackets"),
        ({"rows": [{}, "Rome"]}, r"row 2 is 'Rome' \(str\)\. Expected a dict, or a list of values"),
        ({"rows": [[float("inf")]]}, "a row has a value that cannot be sent"),
        ({"rows": [{"built": {2026}}]}, "a row has a value that cannot be sent"),
    ],
)
def test_invalid_rows_are_refused(waits, given, why):
    client, endpoint = made(200)
    with pytest.raises(ClientError, match=why):
        client.predict("houses", **given)
    assert endpoint.requests == []


def test_pauses_between_attempts_at_a_busy_endpoint_grow(waits):
    client, endpoint = made(503, 429, httpx.ConnectError("refused"), httpx.ReadError("reset"), 200)
    assert client.predict("digits", [b"x"]).version == 2
    assert waits == [0.25, 0.5, 1.0, 2.0]
    assert len({request.content for request in endpoint.requests}) == 1 or len(endpoint.requests) == 5


def test_the_client_waits_as_long_as_the_endpoint_asks(waits):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=20), usegmt=True)
    answers = [(503, {"retry-after": said}) for said in ("3", later, past, "999999", "soon")]
    client, _ = made(*answers, 200, attempts=6)
    client.predict("digits", [b"x"])
    assert waits == [3.0, pytest.approx(19.5, abs=1), 1.0, 30.0, 4.0]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 500, 504])
def test_hopeless_requests_are_not_repeated(waits, status):
    client, endpoint = made(status)
    with pytest.raises(ClientError, match=rf"answered {status}: the image is empty") as caught:
        client.predict("digits", [b"x"])
    assert (caught.value.status, len(endpoint.requests), waits) == (status, 1, [])


@pytest.mark.parametrize("error", [httpx.ReadTimeout("late"), httpx.WriteTimeout("late"), httpx.PoolTimeout("late")])
def test_a_request_that_timed_out_is_not_repeated(waits, error):
    client, endpoint = made(error, timeout=2.5)
    with pytest.raises(ClientError, match=r"^http://here has not answered within 2\.5 s\. Send less in one"):
        client.predict("digits", [b"x"])
    assert (len(endpoint.requests), waits) == (1, [])
    # No request has reached an endpoint that cannot be connected to.
    client, endpoint = made(httpx.ConnectTimeout("late"), 200)
    assert client.predict("digits", [b"x"]).version == 2


def test_the_client_gives_up_after_the_last_attempt(waits):
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
def test_invalid_addresses_are_refused(url):
    with pytest.raises(ClientError, match="is not the address of an endpoint"):
        Client(url)


@pytest.mark.parametrize("model", ["", ".", ".."])
def test_what_cannot_be_the_name_of_a_model_is_refused(waits, model):
    client, endpoint = made(200)
    with pytest.raises(ClientError, match=re.escape(f"{model!r} is not the name of a model")):
        client.predict(model, [b"x"])
    with pytest.raises(ClientError, match="is not the name of a model"):
        client.metadata(model)
    assert not endpoint.requests


@pytest.mark.parametrize("key", ["schlüssel ключ", "a\u00a0b", "a\u00adb"])
def test_a_key_may_have_any_characters(waits, key):
    client, endpoint = made(200, api_key=f"{key}\n")
    client.predict("digits", [b"x"])
    # As serving.keys compares it.
    assert dict(endpoint.requests[0].headers.raw)[b"X-API-Key"] == key.encode()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("sec\nret", "has a character that cannot be sent in a header"),
        ("sec\0ret", "has a character that cannot be sent in a header"),
        (os.fsdecode(b"sec\xe9ret"), "is not UTF-8 text"),
    ],
)
def test_a_key_that_no_request_can_have_is_refused_and_not_quoted(key, why):
    with pytest.raises(ClientError, match=rf"^the key {why}.* Set HIGHWAY_API_KEY") as caught:
        Client("http://here", key)
    assert "sec" not in str(caught.value)


def test_other_servers_and_missing_files(waits, tmp_path):
    def page(_):
        return httpx.Response(200, text="<html>Welcome</html>")

    with pytest.raises(ClientError, match=r"does not answer like a highway-keras endpoint.*Welcome"):
        Client("http://here", transport=httpx.MockTransport(page)).predict("digits", [b"x"])
    with pytest.raises(ClientError, match="answered 502: <html>"):
        Client("http://here", transport=httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))).models()
    unpacked = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"not packed"))
    with pytest.raises(ClientError, match=r"here does not answer like a highway-keras endpoint: .*incorrect head"):
        Client("http://here", transport=httpx.MockTransport(lambda _: unpacked)).models()
    moved = httpx.Response(308, headers={"location": "https://here/models"})
    with pytest.raises(ClientError, match=r"answered 308: it is at https://here/models\. Give the client that address"):
        Client("http://here", transport=httpx.MockTransport(lambda _: moved)).models()
    with pytest.raises(ClientError, match=r"answered 502: Bad Gateway$"):
        Client("http://here", transport=httpx.MockTransport(lambda _: httpx.Response(502)), attempts=1).models()
    client, endpoint = made(200)
    with pytest.raises(ClientError, match=r"nothing\.png cannot be read"):
        client.predict("digits", [tmp_path / "nothing.png"])
    assert endpoint.requests == []


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_that_has_passed_already_is_refused(seconds):
    with pytest.raises(ClientError, match=f"^the timeout must be greater than 0 seconds. Received: {seconds}.$"):
        Client("http://here", timeout=seconds)

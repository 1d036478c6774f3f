"""Requests of published clients other than predictions; `tests/e2e/test_triton_client.py` uses one of them."""

import gzip
import io
import json
import shutil
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from serving.engine.backends import InProcessVersion
from serving.model import Seen
from tests.endpoint import IMAGES, eventually

RAW = {"content-type": "application/octet-stream"}
GIVEN = {"name": "image", "datatype": "UINT8", "shape": [3, 4, 3, 1], "data": IMAGES.ravel().tolist()}


def test_version_0_is_the_newest(client, expected):
    found = client.post("/v1/models/tiny/versions/0:predict", json={"inputs": IMAGES.tolist()}).json()["outputs"]
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    assert client.get("/v1/models/tiny/versions/0").json()["model_version_status"][0]["version"] == "1"
    assert client.get("/v2/models/tiny/versions/0/ready").status_code == 200


def test_fields_of_any_name_and_unnamed_files(client, monkeypatch):
    monkeypatch.setattr(InProcessVersion, "see", lambda _, rgba, segments: Seen(rgba[None, ..., :1], None))
    file = io.BytesIO()
    Image.fromarray(IMAGES[0, ..., 0]).save(file, "PNG")
    raw = client.post("/predict/tiny", content=IMAGES[:1].tobytes(), headers=RAW).json()["predictions"][0]["top"]
    for field in ("picture", "file", "image", "files[]"):
        found = client.post("/predict/tiny", files={field: ("a.png", file.getvalue())}).json()["predictions"][0]
        assert (found["file"], found["top"]) == ("a.png", raw)
    for kind in ("application/octet-stream", "application/x-www-form-urlencoded"):
        found = client.post("/predict/tiny", content=file.getvalue(), headers={"content-type": kind})
        assert found.json()["predictions"][0]["top"] == raw


@pytest.mark.parametrize("name", ["top", "segments", "version"])
def test_query_parameters_are_not_fields_of_a_form(client, name):
    fields = {"files": {"picture": ("a.png", b"x")}, "data": {name: "1"}}
    answer = client.post("/predict/tiny", **fields)
    said = f"the form has a field {name!r}, which is a query parameter. Put it into the address: ?{name}=..."
    assert (answer.status_code, answer.json()["error"]) == (400, said)
    # Files and other fields may have any name.
    answer = client.post("/predict/tiny", files={name: ("a.png", b"x")}, data={"submit": "1"})
    assert "a.png is not an image" in answer.json()["error"]


def test_raw_pixels_are_whole_images(client):
    answer = client.post("/predict/tiny", content=bytes(1000), headers=RAW)
    said = "the body has 1,000 bytes, and an image of model 'tiny' has 12 (4 x 3 x 1). Send whole images, or an image"
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


def form(name):
    """Returns a form with one file, whose name is given as it is sent."""
    head = b'--x\r\nContent-Disposition: form-data; name="picture"; ' + name
    content = head + b"\r\n\r\nno image\r\n--x--\r\n"
    return {"content": content, "headers": {"content-type": "multipart/form-data; boundary=x"}}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (b'filename="sieben.png"', "sieben.png is not"),
        (b"filename*=UTF-8''f%C3%BCnf.png", "fünf.png is not"),
        (b"filename*=utf-8'de'f%C3%BCnf.png", "fünf.png is not"),
        (b'filename="f\xfcnf.png"', "the name of a field or file is not UTF-8. Rename it."),
        (b"other=1", "no file"),
    ],
)
def test_names_of_files_in_forms(client, name, said):
    answer = client.post("/predict/tiny", **form(name))
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text
    assert "Error" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("top=1_0", "'top' is an integer from 1 to 1,000. Received: '1_0'"),
        ("version=1_0", "'version' is a positive integer. Received: '1_0'"),
        ("version=%2B1", "'version' is a positive integer. Received: '+1'"),
        ("top=1&top=2", "'top' is given more than once. Give it once."),
    ],
)
def test_parameters_have_one_value_in_decimal_digits(client, query, said):
    answer = client.post(f"/predict/tiny?{query}", content=IMAGES[:1].tobytes(), headers=RAW)
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


def test_configuration_index_and_statistics(client):
    found = client.get("/v2/models/tiny/config").json()
    assert (found["name"], found["max_batch_size"]) == ("tiny", 256)
    assert found["input"][0]["dims"] == [4, 3, 1]
    assert client.get("/v2/models/tiny/versions/1/config").json() == found
    entry = {"name": "tiny", "version": "1", "state": "READY", "reason": ""}
    for body in (b"", b"{}", b'{"ready": true}'):
        assert client.post("/v2/repository/index", content=body).json() == [entry]
    assert client.post("/v2/repository/index", content=b'{"ready": 1}').status_code == 400
    (before,) = client.get("/v2/models/tiny/stats").json()["model_stats"]
    assert before["inference_stats"]["success"] == {"count": 0, "ns": 0}
    for _ in range(2):
        client.post("/v2/models/tiny/infer", json={"inputs": [GIVEN]})
    assert client.post("/predict/tiny", content=b"not an image").status_code == 400
    for path in ("/v2/models/tiny/stats", "/v2/models/tiny/versions/1/stats", "/v2/models/stats"):
        (after,) = client.get(path).json()["model_stats"]
        assert (after["inference_count"], after["execution_count"]) == (6, 2)
        assert (after["inference_stats"]["success"]["count"], after["inference_stats"]["fail"]["count"]) == (2, 1)
        assert after["inference_stats"]["success"]["ns"] >= after["inference_stats"]["compute_infer"]["ns"] > 0
        assert [one["batch_size"] for one in after["batch_stats"]] == [3]
        assert abs(after["last_inference"] - 1000 * time.time()) < 60_000
    assert client.get("/v2/models/other/stats").status_code == 404


def test_damaged_and_missing_models_have_different_statuses(client, version):
    bad = version.parents[1] / "damaged"
    shutil.copytree(version, bad / "1")
    eventually(lambda: client.get("/v1/models/damaged").status_code == 200)
    eventually(lambda: client.get("/v1/models/damaged").json()["model_version_status"][0]["state"] == "END")
    for method, path in (("GET", "/v2/models/{}/ready"), ("POST", "/predict/{}"), ("POST", "/v1/models/{}:predict")):
        answer = client.request(method, path.format("damaged"), content=b"x" if method == "POST" else None)
        assert answer.status_code == 503
        assert "Version 1 was refused: " in answer.json()["error"]
        assert client.request(method, path.format("missing")).status_code == 404
        assert "damaged/1 has the manifest of version 1 of model 'tiny'" in answer.json()["error"]
    assert client.get("/v1/models/damaged").json()["ready"] is False
    # The path of the repository is nobody's business.
    for path in ("/v1/models", "/v1/models/damaged", "/v2/repository/index", "/models", "/metrics", "/predict/damaged"):
        answer = client.request("POST" if path[1:3] in ("v2", "pr") else "GET", path)
        assert str(version.parents[2]) not in answer.text, path


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress), ("x-gzip", gzip.compress)],
)
def test_compressed_requests(client, coding, compress):
    body = json.dumps({"inputs": [GIVEN]}).encode()
    plain = client.post("/v2/models/tiny/infer", content=body).json()
    headers = {"content-encoding": coding}
    assert client.post("/v2/models/tiny/infer", content=compress(body), headers=headers).json() == plain
    # In small parts, which the limits count after decompression.
    parts = (compress(body)[start : start + 7] for start in range(0, 10**4, 7))
    assert client.post("/v2/models/tiny/infer", content=parts, headers=headers).json() == plain
    for wrong, said in (
        (body, "cannot be decompressed"),
        (compress(body)[:-9], "ends too early"),
        (compress(body) + b"more", "more bytes follow"),
    ):
        answer = client.post("/v2/models/tiny/infer", content=wrong, headers=headers)
        assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize("coding", ["identity", "Identity"])
def test_a_body_may_be_called_uncompressed(client, coding):
    answer = client.post("/v2/models/tiny/infer", json={"inputs": [GIVEN]}, headers={"content-encoding": coding})
    assert answer.status_code == 200


def test_an_unknown_coding_is_refused(client):
    answer = client.post("/v2/models/tiny/infer", content=b"x", headers={"content-encoding": "br"})
    assert (answer.status_code, "gzip, deflate" in answer.json()["error"]) == (415, True)


def test_a_body_that_expands_beyond_the_limit_is_refused(client, settings):
    bomb = gzip.compress(bytes(settings.body + 1))
    answer = client.post("/v2/models/tiny/infer", content=bomb, headers={"content-encoding": "gzip"})
    assert (answer.status_code, "limit of 33,554,432" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_answers(client, coding):
    body = json.dumps({"inputs": [{**GIVEN, "shape": [60, 4, 3, 1], "data": GIVEN["data"] * 20}]})
    for weight in ("0", "0.", "0.000"):
        headers = {"accept-encoding": f"{coding}; q={weight}"}
        plain = client.post("/v2/models/tiny/infer", content=body, headers=headers)
        assert "content-encoding" not in plain.headers
    found = client.post("/v2/models/tiny/infer", content=body, headers={"accept-encoding": f"br, {coding};q=0.5"})
    assert found.headers["content-encoding"] == coding
    assert int(found.headers["content-length"]) < len(plain.content)
    assert found.json() == plain.json()
    # Short ones are sent as they are.
    short = client.post("/v2/models/tiny/infer", json={"inputs": [GIVEN]}, headers={"accept-encoding": coding})
    assert "content-encoding" not in short.headers

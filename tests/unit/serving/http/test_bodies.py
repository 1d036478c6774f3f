"""Large and many bodies: their limits, and answers that stay the same."""

import asyncio
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

from serving.engine import decoding
from serving.engine.predictor import Predictor
from serving.engine.processes import COPIED, SMALL
from serving.engine.settings import Settings
from serving.http.app import make_app
from tests.endpoint import IMAGES, LoadedClient


def spaced(given):
    """Returns JSON that is too long for the event loop to parse itself."""
    return json.dumps(given).encode() + b" " * SMALL


def test_all_bodies_together_are_limited(version):
    raw = {"content-type": "application/octet-stream"}
    with LoadedClient(make_app(Settings(models=version.parents[1], bodies=20))) as client:
        answer = client.post("/predict/tiny", content=IMAGES.tobytes(), headers=raw)
        assert (answer.status_code, "more than 20 bytes" in answer.json()["error"]) == (503, True)
        assert answer.headers["retry-after"] == "1"
        # Refused bodies no longer count.
        for _ in range(3):
            assert client.post("/predict/tiny", content=IMAGES[:1].tobytes(), headers=raw).status_code == 200
        assert "highway_bodies_bytes 0.0" in client.get("/metrics").text


def test_files_that_wait_to_be_decoded_are_limited(version, monkeypatch):
    free = threading.Event()

    async def held(decoder, work):
        # A file that is decoded in the event loop's thread would keep the others from arriving.
        await asyncio.to_thread(free.wait, 10)
        return work()

    monkeypatch.setattr(decoding.Decoder, "_decode_here", held)
    file = io.BytesIO()
    Image.new("L", (3, 4)).save(file, "PNG")
    with (
        LoadedClient(make_app(Settings(models=version.parents[1], queue=2))) as client,
        ThreadPoolExecutor(6) as threads,
    ):
        asked = [threads.submit(client.post, "/predict/tiny", content=file.getvalue()) for _ in range(6)]
        waiting = list(asked)
        while len(waiting) > 2:
            waiting = [one for one in waiting if not one.done()]
        free.set()
        answers = [one.result() for one in asked]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 4
    assert all("limit is 2" in answer.json()["error"] for answer in refused)


def test_large_json_gives_the_same(client, expected):
    whole = client.post("/v1/models/tiny:predict", content=spaced({"inputs": IMAGES.tolist()})).json()["outputs"]
    np.testing.assert_allclose(whole["probabilities"], expected, atol=1e-6)
    given = {"name": "image", "datatype": "UINT8", "shape": [3, 4, 3, 1], "data": IMAGES.ravel().tolist()}
    answer = client.post("/v2/models/tiny/infer", content=spaced({"inputs": [given]})).json()["outputs"][0]
    np.testing.assert_allclose(np.reshape(answer["data"], (3, 4)), expected, atol=1e-6)
    for path, body, said in (
        ("/v1/models/tiny:predict", b"[" + b" " * SMALL, "is not JSON"),
        ("/v1/models/tiny:predict", spaced({"inputs": [[300]]}), "has the shape"),
        ("/v2/models/tiny/infer", spaced({"inputs": []}), "list of one input"),
    ):
        answer = client.post(path, content=body)
        assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


def test_json_with_more_values_than_images_have_is_not_read(client):
    # Each empty list takes 64 bytes of memory.
    body = b'{"instances": [' + b"[]," * 40_000 + b"[]]}"
    answer = client.post("/v1/models/tiny:predict", content=body)
    assert (answer.status_code, "far more values than 256 images" in answer.json()["error"]) == (413, True)


def test_large_answers_are_the_same(version, expected):
    settings = Settings(version.parents[1], images=9000)
    with LoadedClient(make_app(settings)) as client:
        many = IMAGES.repeat(3000, axis=0)
        raw = {"content-type": "application/octet-stream"}
        plain = client.post("/predict/tiny?top=1&seen=true", content=many.tobytes(), headers=raw).json()["predictions"]
        given = {
            "name": "image",
            "datatype": "UINT8",
            "shape": list(many.shape),
            "parameters": {"binary_data_size": many.size},
        }
        head = json.dumps({"inputs": [given]}).encode()
        headers = {"inference-header-content-length": str(len(head))}
        tensors = client.post("/v2/models/tiny/infer", content=head + many.tobytes(), headers=headers).json()["outputs"]
    assert [one["seen"] for one in plain[::3000]] == IMAGES.tolist()
    best = expected.repeat(3000, axis=0).max(-1)
    np.testing.assert_allclose([one["top"][0]["probability"] for one in plain], best, atol=1e-6)
    np.testing.assert_allclose(np.reshape(tensors[0]["data"], (9000, 4)).max(-1), best, atol=1e-6)


def test_large_binary_tensors_are_converted_in_another_process(version, monkeypatch):
    offload, sizes = Predictor.offload, []

    async def recorded(predictor, size, *arguments):
        sizes.append(size)
        return await offload(predictor, size, *arguments)

    monkeypatch.setattr(Predictor, "offload", recorded)
    given = {"name": "image", "datatype": "FP64", "shape": [0, 4, 3, 1], "parameters": {}}
    with LoadedClient(make_app(Settings(version.parents[1], images=20_000))) as client:
        for count in (3, COPIED // (12 * 8) + 1):
            given |= {"shape": [count, 4, 3, 1], "parameters": {"binary_data_size": count * 12 * 8}}
            head = json.dumps({"inputs": [given]}).encode()
            headers = {"inference-header-content-length": str(len(head))}
            answer = client.post("/v2/models/tiny/infer", content=head + bytes(count * 12 * 8), headers=headers)
            assert answer.json()["outputs"][0]["shape"] == [count, 4]
    small, _, large, _ = sizes
    assert small <= SMALL < COPIED < large


def test_a_body_in_many_parts_is_joined(client, expected):
    raw = {"content-type": "application/octet-stream"}
    content = IMAGES.tobytes()
    whole = client.post("/predict/tiny?top=1", content=content, headers=raw).json()
    parts = client.post("/predict/tiny?top=1", content=iter([content[:5], content[5:6], content[6:]]), headers=raw)
    assert parts.json() == whole

"""Published clients of KServe and of OpenVINO's model server: requests that they sent, and answers that they accepted.

`recorder.py` says how to record them anew.
"""

import base64
import json
import os

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from PIL import Image
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
from tritonclient.grpc import service_pb2

from serving.engine.backends import InProcessVersion
from serving.model import Seen
from tests.endpoint import IMAGES

from .recorder import FOLDER, record, replay

CLIENTS = ("kserve", "ovmsclient")
MESSAGES = {
    "Predict": predict_pb2.PredictResponse,
    "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataResponse,
    "GetModelStatus": get_model_status_pb2.GetModelStatusResponse,
    "ModelInfer": service_pb2.ModelInferResponse,
    "ModelReady": service_pb2.ModelReadyResponse,
    "ServerLive": service_pb2.ServerLiveResponse,
    "ServerReady": service_pb2.ServerReadyResponse,
}


@pytest.fixture(params=CLIENTS)
def exchanges(request, served, tmp_path, monkeypatch):
    monkeypatch.setattr(InProcessVersion, "see", lambda _, rgba, segments: Seen(rgba[None, ..., :1], None))
    if python := os.environ.get("HIGHWAY_RECORD"):
        np.save(tmp_path / "images.npy", IMAGES)
        Image.fromarray(IMAGES[0, ..., 0]).save(tmp_path / "image.png")
        record(served, request.param, python, tmp_path)
    return json.loads((FOLDER / f"{request.param}.json").read_text())["exchanges"]


def approximately(value):
    """Returns plain values that equal others but for the rounding of floats."""
    if isinstance(value, dict):
        return {name: approximately(one) for name, one in value.items()}
    if isinstance(value, list):
        return [approximately(one) for one in value]
    return pytest.approx(value, rel=1e-4) if isinstance(value, float) else value


def parts(exchange):
    """Returns an answer as plain values, and its numbers in binary."""
    content = base64.b64decode(exchange["answer"])
    if "rpc" not in exchange:
        size = int(exchange["answer_headers"].get("inference-header-content-length", len(content)))
        return json.loads(content[:size] or b"null"), content[size:]
    if exchange["status"] != "OK":
        return content, b""
    values = MessageToDict(MESSAGES[exchange["rpc"].rpartition("/")[2]].FromString(content))
    return values, b"".join(map(base64.b64decode, values.pop("rawOutputContents", [])))


def test_recorded_requests_get_the_recorded_answers(served, exchanges):
    assert exchanges
    for exchange in exchanges:
        found = replay(served, exchange)
        assert [found["status"], found.get("answer_headers")] == [exchange["status"], exchange.get("answer_headers")]
        (values, binary), (expected, expected_binary) = parts(found), parts(exchange)
        assert values == approximately(expected)
        # Whatever the types, equal bits are equal as integers, and floats that differ by rounding are close as floats.
        assert len(binary) == len(expected_binary)
        if binary != expected_binary:
            np.testing.assert_allclose(*(np.frombuffer(one, "<f4") for one in (binary, expected_binary)), rtol=1e-4)

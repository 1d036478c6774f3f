"""Messages of calls are freed at once, not when garbage is collected."""

import gc
import tracemalloc
from contextlib import suppress

import grpc
import numpy as np
import pytest

from serving.engine.batching import Batcher
from serving.errors import OutputError
from tests.endpoint import IMAGES, eventually

from .served import infer_request

CALLS, LARGE = 8, 2**21
# An unknown field, which protobuf skips.
PADDING = b"\xfa\x7f\x80\x80\x80\x01" + bytes(LARGE)


def infer(images, **fields):
    return infer_request(images, **fields).SerializeToString() + PADDING


# Messages by their way through the endpoint.
MESSAGES = {
    "answered": infer(IMAGES),
    "of an unknown model": infer(IMAGES, model_name="other"),
    "with too many images": infer(np.zeros((300, 4, 3, 1), np.uint8)),
    "malformed": b"\xff" * LARGE,
}


@pytest.fixture
def kept():
    """Traced bytes, while garbage is not collected."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.enable()


def check(served, kept, message, answered, path="/inference.GRPCInferenceService/ModelInfer"):
    method = served.channel.unary_unary(path)

    def call():
        with suppress(grpc.RpcError):
            method(message)
            return True
        return False

    assert call() == answered
    before = kept()
    for _ in range(CALLS):
        call()
    eventually(lambda: kept() - before < len(message))


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_is_freed(served, kept, kind):
    check(served, kept, MESSAGES[kind], kind == "answered")


def test_a_message_to_the_health_service_is_freed(served, kept):
    check(served, kept, b"\xff" * LARGE, False, "/grpc.health.v1.Health/Check")


def test_a_message_is_freed_whose_prediction_fails(served, kept, monkeypatch):
    async def failing_predict(*_):
        raise OutputError("version 1 of model 'tiny' computed nothing")

    monkeypatch.setattr(Batcher, "predict", failing_predict)
    check(served, kept, MESSAGES["answered"], False)

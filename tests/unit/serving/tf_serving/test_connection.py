"""Connections to servers that are absent, silent, or not TF Serving."""

import asyncio
import contextlib
import json
import socket
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

import grpc
import numpy as np
import pytest

from serving.errors import UnavailableError
from serving.messages import tf_serving as messages
from serving.tf_serving.backend import connect
from serving.tf_serving.over_grpc import GrpcConnection
from serving.tf_serving.over_rest import RestConnection

IMAGES = np.zeros((2, 4, 3, 1), np.uint8)


def asked(address, seconds=10.0):
    async def ask():
        connection = connect(address)
        try:
            return await connection.predict("digits", 1, IMAGES, ("probabilities",), seconds)
        finally:
            await connection.close()

    return asyncio.run(ask())


@pytest.fixture
def silent():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def rest(status, body, headers=MappingProxyType({})):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def grpc_server(answer):
    """Answers each prediction with these bytes."""
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)
    service = grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", {"Predict": handler})
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_the_address_says_which_protocol():
    async def kinds():
        made = [connect(address) for address in ("a:8500", "http://a:8501", "https://a")]
        for one in made:
            await one.close()
        return [type(one) for one in made]

    assert asyncio.run(kinds()) == [GrpcConnection, RestConnection, RestConnection]


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_an_absent_server_is_reported(scheme):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(UnavailableError, match=f"TF Serving at {address}"):
        asked(address)


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_silent_server_is_reported(silent, scheme):
    with pytest.raises(TimeoutError):
        asked(scheme + silent, seconds=0.3)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "not JSON"),
        (200, b"[]", "malformed outputs"),
        (200, b'{"outputs": {"class_id": [1, 2]}}', "malformed outputs"),
        (200, b'{"outputs": 3}', "malformed outputs"),
        (200, b'{"outputs": {"probabilities": [[1], [1, 2]]}}', "malformed outputs"),
        (404, b'{"error": "Servable not found"}', "Servable not found"),
        (500, b"[]", "status 500"),
    ],
)
def test_invalid_rest_answers_are_reported(status, body, said):
    with rest(status, body) as url, pytest.raises(UnavailableError, match=said):
        asked(url)


def test_a_rest_answer_that_cannot_be_decompressed_is_reported():
    with (
        rest(200, b"{}", {"Content-Encoding": "gzip"}) as url,
        pytest.raises(UnavailableError, match="TF Serving"),
    ):
        asked(url)


def test_nan_in_a_rest_answer_is_read():
    # TF Serving writes NaN, which JSON does not have.
    with rest(200, b'{"outputs": {"probabilities": [[0.5, NaN]]}}') as url:
        assert np.isnan(asked(url)["probabilities"]).tolist() == [[False, True]]


@pytest.mark.parametrize("address", ["http://here", "here:8500"])
def test_rows_are_sent_with_their_missing_numbers(monkeypatch, address):
    rows, sent = np.float32([[4, np.nan], [1, -1]]), []

    async def predict():
        connection = connect(address)
        if isinstance(connection, RestConnection):

            async def request(method, path, timeout, content):
                sent.append(np.array(json.loads(content)["inputs"]["row"], np.float32))
                return {"outputs": [[1], [2]]}

            monkeypatch.setattr(connection, "_request", request)
        else:

            async def answer(request, timeout):
                sent.append(messages.array(request.inputs["row"]))
                tensor = messages.tensor(np.float32([[1], [2]]))
                return messages.PredictResponse.FromString(response(value=tensor))

            monkeypatch.setattr(connection, "_predict", answer)
        found = await connection.predict("houses", 1, rows, ("value",), 1.0)
        await connection.close()
        return found

    assert asyncio.run(predict())["value"].tolist() == [[1], [2]]
    np.testing.assert_array_equal(sent[0], rows)


def response(**tensors):
    made = messages.PredictResponse()
    for name, tensor in tensors.items():
        made.outputs[name].CopyFrom(tensor)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (response(), "malformed outputs"),
        (response(probabilities=messages.TensorProto(dtype=8)), "malformed outputs"),
        (response(probabilities=messages.TensorProto(dtype=1, float_val=[1, 2], tensor_shape={"dim": [{"size": 3}]})),
         "malformed outputs"),
    ],
)  # fmt: skip
def test_invalid_grpc_answers_are_reported(answer, said):
    with grpc_server(answer) as address, pytest.raises(UnavailableError, match=said):
        asked(address)


def test_a_server_without_the_service_is_reported():
    with grpc_server(b"") as address:

        async def ask():
            connection = connect(address)
            try:
                await connection.state("digits", 1, 10.0)
            finally:
                await connection.close()

        with pytest.raises(UnavailableError, match="UNIMPLEMENTED"):
            asyncio.run(ask())

"""OpenTelemetry spans of the whole endpoint, by HTTP and gRPC, at an exporter in memory."""

import io
import sys

import grpc
import pytest
from PIL import Image
from tritonclient.grpc import service_pb2

from serving.engine.settings import Settings
from tests import tiny_model
from tests.endpoint import IMAGES

from .served import Served, infer_request

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
METADATA = tuple(PARENT.items())
RAW = {"content-type": "application/octet-stream", **PARENT}


@pytest.fixture
def settings(tmp_path):
    """Settings for a version that takes images of any size."""
    return Settings(models=tiny_model.write(tmp_path / "models" / "tiny" / "1").parents[1], poll=0.05)


@pytest.fixture
def collector(monkeypatch):
    """Takes the spans of endpoints that are started during the test, in place of a collector."""
    reason = "the extra `tracing` is not installed"
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=reason)
    exporter = memory.InMemorySpanExporter()
    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", lambda: exporter)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    return exporter


def recorded(collector):
    """Returns the spans that continue the client's trace, the one of the request last."""
    return [span for span in collector.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACE]


def png():
    made = io.BytesIO()
    Image.fromarray(IMAGES[0, ..., 0]).save(made, "PNG")
    return made.getvalue()


def by_http(served):
    answer = served.http.post("/predict/tiny", files={"picture": ("a.png", png())}, headers=PARENT)
    assert answer.status_code == 200, answer.text
    return answer.headers["traceparent"]


def by_grpc(served):
    _, call = served.inference.ModelInfer.with_call(infer_request(), metadata=METADATA)
    return dict(call.trailing_metadata())["traceparent"]


@pytest.mark.parametrize(
    ("ask", "name", "parts"),
    [
        (by_http, "POST /predict/{name}", ["decode", "predict"]),
        (by_grpc, "inference.GRPCInferenceService/ModelInfer", ["predict"]),
    ],
)
def test_a_request_is_recorded_in_the_clients_trace(collector, settings, ask, name, parts):
    with Served(settings) as served:
        traceparent = ask(served)
    # The endpoint has sent what it had recorded when it stopped.
    *inner, request = recorded(collector)
    assert traceparent == f"00-{TRACE}-{request.context.span_id:016x}-01"
    assert (request.name, request.kind.name, f"{request.parent.span_id:016x}") == (name, "SERVER", CLIENT)
    # By OpenTelemetry's conventions, which have no names of HTTP for gRPC.
    about = {"highway.model": "tiny", "highway.version": "1"}
    if ask is by_http:
        about |= {"http.request.method": "POST", "http.route": "/predict/{name}", "url.path": "/predict/tiny"}
        about |= {"http.response.status_code": 200, "client.address": "testclient"}
    else:
        about |= {"rpc.system.name": "grpc", "rpc.method": name, "rpc.response.status_code": "OK"}
        about |= {"client.address": "127.0.0.1"}
    assert dict(request.attributes) == about
    assert request.status.status_code.name == "UNSET"
    assert [span.name for span in inner] == parts
    for span in inner:
        assert span.parent.span_id == request.context.span_id
        assert request.start_time <= span.start_time <= span.end_time <= request.end_time


def wrong_body(served):
    assert served.http.post("/predict/tiny", content=b"abc", headers=RAW).status_code == 400


def wrong_message(served):
    refused(served, infer_request(datatype="FP64"), grpc.StatusCode.INVALID_ARGUMENT)


def invented_model(served):
    assert served.http.post("/predict/invented", content=b"abc", headers=RAW).status_code == 404


def invented_model_by_grpc(served):
    refused(served, service_pb2.ModelInferRequest(model_name="invented"), grpc.StatusCode.NOT_FOUND)


def draining(served):
    served.settings.draining.set()
    assert served.http.get("/v2/health/ready", headers=PARENT).status_code == 503


def broken(served):
    content = IMAGES.tobytes()
    assert served.http.post("/predict/tiny", content=content, headers=RAW).status_code == 500


def broken_by_grpc(served):
    refused(served, infer_request(), grpc.StatusCode.INTERNAL)


def refused(served, message, status):
    with pytest.raises(grpc.RpcError) as error:
        served.inference.ModelInfer(message, metadata=METADATA)
    assert error.value.code() == status


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (wrong_body, (400, "request", "tiny", "1")),
        (wrong_message, ("INVALID_ARGUMENT", "request", "tiny", "1")),
        (invented_model, (404, "unknown_model", None, None)),
        (invented_model_by_grpc, ("NOT_FOUND", "unknown_model", None, None)),
        (draining, (503, "draining", None, None)),
        (broken, (500, "failed", "tiny", "1")),
        (broken_by_grpc, ("INTERNAL", "failed", "tiny", "1")),
    ],
)
def test_a_refusal_is_recorded_with_its_kind(collector, settings, monkeypatch, ask, expected):
    status, *_ = expected
    if status in (500, "INTERNAL"):
        monkeypatch.setattr("serving.engine.batching.Batcher.predict", lambda *_: 1 / 0)
    with Served(settings) as served:
        ask(served)
    request = recorded(collector)[-1]
    status_name = "rpc.response.status_code" if isinstance(status, str) else "http.response.status_code"
    names = (status_name, "error.type", "highway.model", "highway.version")
    assert tuple(request.attributes.get(name) for name in names) == expected
    # OpenTelemetry's conventions leave it to the client to call its own mistakes errors.
    assert request.status.status_code.name == ("ERROR" if status in (500, 503, "INTERNAL") else "UNSET")


def test_a_trace_that_the_client_does_not_record_is_not_recorded(collector, settings):
    with Served(settings) as served:
        answer = served.http.get("/models", headers={"traceparent": f"00-{TRACE}-{CLIENT}-00"})
    assert answer.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert answer.headers["traceparent"].endswith("-00")
    assert recorded(collector) == []


@pytest.mark.parametrize("configured", [False, True])
def test_without_the_extra_traces_are_still_continued(settings, monkeypatch, caplog, configured):
    # None of its packages can be imported.
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    if configured:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with Served(settings) as served:
        found = [by_http(served), by_grpc(served)]
        wrong_body(served)
        wrong_message(served)
    assert [one[:36] for one in found] == [f"00-{TRACE}-"] * 2
    assert ("highway-keras[tracing]" in caplog.text) == configured

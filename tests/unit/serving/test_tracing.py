"""Identities of requests, and spans if they are recorded."""

import re

import pytest

from serving import tracing
from serving.tracing import Tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def begin(**headers):
    return Tracing().begin({name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})


def test_a_trace_continues_the_clients():
    trace = begin(traceparent=PARENT, x_request_id="a-1")
    assert (trace.request_id, trace.trace_id, trace.flags) == ("a-1", PARENT[3:35], "01")
    assert re.fullmatch(f"00-{PARENT[3:35]}-[0-9a-f]{{16}}-01", trace.traceparent)
    assert trace.span_id not in PARENT
    # Later versions of the format may add fields.
    assert begin(traceparent=f"01{PARENT[2:]}-more").trace_id == PARENT[3:35]


@pytest.mark.parametrize(
    "sent",
    [
        "", "00", f"ff{PARENT[2:]}", f"{PARENT}-more", PARENT.upper(), PARENT.replace("b7ad6b7169203331", "0" * 16),
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), f" {PARENT}",
    ],
)  # fmt: skip
def test_an_invalid_trace_is_replaced(sent):
    traces = [begin(traceparent=sent) for _ in range(2)]
    assert all(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", one.traceparent) for one in traces)
    assert len({one.trace_id for one in traces} | {PARENT[3:35]}) == 3
    assert [one.request_id for one in traces] == [one.trace_id for one in traces]


@pytest.mark.parametrize("sent", ["", "x" * 129, "two words", "line\nbreak", "ü"])
def test_an_invalid_request_id_is_replaced(sent):
    trace = begin(x_request_id=sent)
    assert trace.request_id == trace.trace_id


@pytest.fixture
def spans(monkeypatch):
    """Spans in the order of their ends, in place of a collector."""
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="the extra `tracing` is not installed")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    found = []

    def record(_, batch):
        found.extend(batch)
        return export.SpanExportResult.SUCCESS

    monkeypatch.setattr(OTLPSpanExporter, "export", record)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    return found


def test_spans_are_recorded_as_part_of_the_clients_trace(spans):
    traced = Tracing()
    trace = traced.begin({b"traceparent": PARENT.encode(), b"x-request-id": b"a"})
    with traced.use(trace), traced.span("decode"):
        pass
    traced.end(trace, "POST /predict/{name}", 503, {"highway.model": "digits", "error.type": ""})
    traced.close(10)
    inner, outer = spans
    assert (trace.request_id, trace.trace_id, trace.flags) == ("a", PARENT[3:35], "01")
    assert f"{outer.context.trace_id:032x}-{outer.context.span_id:016x}" == trace.traceparent[3:-3]
    assert (f"{outer.parent.span_id:016x}", inner.parent.span_id) == (PARENT[36:52], outer.context.span_id)
    assert (inner.name, outer.name, outer.status.is_ok) == ("decode", "POST /predict/{name}", False)
    assert dict(outer.attributes) == {"highway.model": "digits"}
    assert outer.resource.attributes["service.name"] == tracing.SERVICE
    assert outer.resource.attributes["deployment.environment.name"] == "test"


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_recording_can_be_disabled(spans, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert Tracing().begin({}).span is None


def test_a_missing_package_is_reported(spans, monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    assert Tracing().begin({}).span is None
    assert "highway-keras[tracing]" in caplog.text

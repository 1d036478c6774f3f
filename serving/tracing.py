"""Request ids, W3C trace context, and spans for OpenTelemetry.

Every request has an id and a `traceparent` (https://www.w3.org/TR/trace-context/), which continue the client's if it
sends them. Spans are recorded if a collector is configured by OpenTelemetry's own environment variables, such as
`OTEL_EXPORTER_OTLP_ENDPOINT`; that needs the extra `tracing`.
"""

import logging
import os
import random
import re
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE = "highway-serve"
# Headers of requests and answers.
REQUEST_ID = b"x-request-id"
TRACEPARENT = b"traceparent"
# Id of the request that the current task answers, for its log lines.
request_id: ContextVar[str] = ContextVar("request_id", default="")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_ID = re.compile(rb"[!-~]{1,128}")
# Context of requests that nobody records.
_NOTHING = nullcontext()
# Version, trace, parent and flags; later versions may add more.
_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
log = logging.getLogger(__name__)


class Trace(NamedTuple):
    """Identity of one request."""

    request_id: str
    """Id that the client sent as `X-Request-ID`, or else the id of the trace."""
    trace_id: str
    """Id of the trace, 32 hexadecimal digits."""
    span_id: str
    """Id of this request within the trace, 16 hexadecimal digits."""
    flags: str = "00"
    """Flags of the trace, two hexadecimal digits; 01 means that somebody records it."""
    span: "Span | None" = None
    """Span that records the request."""

    @property
    def traceparent(self) -> str:
        """Value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class Tracing:
    """Traces of one process.

    Without a collector in the environment it records nothing and imports nothing.

    Example:
        tracing = Tracing()
        trace = tracing.begin({b"x-request-id": b"a1", b"accept": b"*/*"})
        assert trace.request_id == "a1"
        with tracing.use(trace), tracing.span("decode"):
            pass
        tracing.end(trace, "POST /predict/{name}", 200, {})
        tracing.close(1.0)
    """

    def __init__(self) -> None:
        self._provider = _provider()
        self._tracer: Tracer | None = self._provider.get_tracer(SERVICE) if self._provider else None

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace:
        """Identifies a request, and starts its span if spans are recorded.

        Args:
            headers: headers of the request, with lower-case names.
        """
        sent = headers.get(REQUEST_ID)
        given = sent.decode() if sent and _ID.fullmatch(sent) else ""
        if self._tracer is not None:
            return _recorded(self._tracer, headers, given)
        # Ids are unique, not secret; each worker has a generator of its own.
        made = random.randbytes(24).hex()
        trace, flags = made[:32], "00"
        sent = headers.get(TRACEPARENT)
        parent = _PARENT.fullmatch(sent) if sent else None
        if parent and (parent[1] != b"00" or not parent[5]):
            trace, flags = parent[2].decode(), parent[4].decode()
        return Trace(given or trace, trace, made[32:], flags)

    def use(self, trace: Trace) -> AbstractContextManager[object]:
        """Returns a context in which spans are parts of this request."""
        if trace.span is None:
            return _NOTHING
        from opentelemetry.trace import use_span

        # An exception that ends a gRPC call is not always an error of the endpoint: `end` knows its status.
        return use_span(trace.span, record_exception=False, set_status_on_exception=False)

    def span(self, name: str) -> AbstractContextManager[object]:
        """Returns a context that is recorded as a part of the current request."""
        return _NOTHING if self._tracer is None else self._tracer.start_as_current_span(name)

    def end(self, trace: Trace, name: str, status: int, attributes: Mapping[str, str | int]) -> None:
        """Ends the span of a request.

        Args:
            trace: its identity.
            name: name of the span.
            status: HTTP status of the answer, or of the same error over HTTP; from 500 on, the span is one of an error.
            attributes: facts, named by OpenTelemetry's conventions; empty ones are left out.
        """
        if (span := trace.span) is None:
            return
        from opentelemetry.trace import StatusCode

        span.update_name(name)
        span.set_attributes({key: value for key, value in attributes.items() if value})
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self, seconds: float) -> None:
        """Sends the spans that are left, for some seconds at most: the collector may be gone."""
        if self._provider is not None:
            closing = threading.Thread(target=self._provider.shutdown, daemon=True)
            closing.start()
            closing.join(seconds)


def _recorded(tracer: "Tracer", headers: Mapping[bytes, bytes], given: str) -> Trace:
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    span = tracer.start_span("request", propagate.extract(sent), SpanKind.SERVER)
    context = span.get_span_context()
    trace = f"{context.trace_id:032x}"
    return Trace(given or trace, trace, f"{context.span_id:016x}", f"{context.trace_flags:02x}", span)


def _provider() -> "TracerProvider | None":
    disabled = os.environ.get("OTEL_TRACES_EXPORTER") == "none" or os.environ.get("OTEL_SDK_DISABLED", "") == "true"
    if disabled or not any(map(os.environ.get, _ENDPOINTS)):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no spans are recorded: they need the extra `tracing`, `pip install highway-keras[tracing]`")
        return None
    # From OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME; the SDK reads all other settings from the environment too.
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider

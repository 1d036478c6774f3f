"""Access to an endpoint, over HTTP and gRPC: the key, rate and size of each request, and its record."""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from serving.engine.settings import Settings
from serving.errors import BusyError, LimitError
from serving.keys import Keys, RateLimit
from serving.requests.metrics import BODIES, IN_FLIGHT, track
from serving.requests.records import RequestRecord
from serving.tracing import Tracing, request_id

WRONG_KEY = "the key is missing or wrong. Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."


class Denial(NamedTuple):
    """Reason not to answer a request."""

    status: int
    """HTTP status."""
    kind: str
    """Kind of the error in metrics and log."""
    reason: str
    """Message of the error."""
    after: float | None = None
    """Seconds until a retry makes sense."""


class AccessControl:
    """Checks key, rate and size of each request, and records it.

    Args:
        settings: limits of the endpoint.
        keys: keys that clients must send.
        tracing: records spans.
        models: returns the names of the models in the repository, served or refused.
    """

    def __init__(self, settings: Settings, keys: Keys, tracing: Tracing, models: Callable[[], Container[str]]) -> None:
        self.tracing = tracing
        self._keys, self._models = keys, models
        self._rate = RateLimit(settings.rate) if settings.rate else None
        self._body = settings.body
        self._bodies = settings.bodies
        self._held = self._in_flight = 0
        track(BODIES, lambda: self._held)
        track(IN_FLIGHT, lambda: self._in_flight)

    def begin(self, headers: Mapping[bytes, bytes]) -> RequestRecord:
        """Returns the record of a request with these headers, or of a gRPC call with this metadata."""
        record = RequestRecord(self.tracing.begin(headers))
        request_id.set(record.trace.request_id)
        return record

    def deny(self, headers: Mapping[bytes, bytes], record: RequestRecord, *, is_open: bool) -> Denial | None:
        """Refuses a request or a gRPC call because of its key or its rate.

        Args:
            headers: its headers or metadata.
            record: its record, which gets the name of the key.
            is_open: whether it needs no key.
        """
        if is_open or not self._keys:
            return None
        record.key = self._keys.find(_sent_key(headers))
        if record.key is None:
            return Denial(401, "key", WRONG_KEY)
        if self._rate and (wait := self._rate.wait(record.key)):
            rate = f"{self._rate.rate:g} request{'' if self._rate.rate == 1 else 's'} per second"
            return Denial(429, "rate", f"this key may send {rate}. Send fewer, or try again later.", wait)
        return None

    def enter(self) -> None:
        """Counts a request, until `leave`."""
        self._in_flight += 1

    def count(self, size: int, total: int) -> None:
        """Counts received bytes, until `leave`.

        Args:
            size: number of bytes.
            total: bytes of this request so far.

        Raises:
            LimitError: the request is too large.
            BusyError: all requests together are too large.
        """
        self._held += size
        if total > self._body:
            raise LimitError(too_long(total, self._body))
        if self._held > self._bodies:
            raise BusyError(f"requests of more than {self._bodies:,} bytes are being answered already.", after=1.0)

    def leave(
        self,
        record: RequestRecord,
        size: int,
        *,
        method: str,
        path: str,
        route: str,
        model: str,
        status: int,
        client: str,
        grpc_status: str = "",
    ) -> None:
        """Publishes the record of a request, and frees its bytes that `count` has counted.

        Args:
            record: its record.
            size: number of these bytes.
            method: its method.
            path: its path.
            route: pattern of the path, or "unknown".
            model: name of the requested model, which the client may have invented; empty if it names none.
            status: status of the answer.
            client: address of the client, if it has one.
            grpc_status: name of the status of a gRPC call, such as `OK`; empty for a request over HTTP.
        """
        self._in_flight -= 1
        self._held -= size
        # Only known names: each makes new series of the metrics.
        if record.served is None and model and model in self._models():
            record.model = model
        record.publish(method, path, route, status, client)
        if record.trace.span is not None:
            model, version = record.about()
            # https://opentelemetry.io/docs/specs/semconv/, for servers over HTTP and gRPC.
            found: dict[str, str | int]
            if grpc_status:
                name = path.removeprefix("/")
                found = {"rpc.system.name": "grpc", "rpc.method": name, "rpc.response.status_code": grpc_status}
            else:
                name = f"{method} {route}"
                found = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
                found["url.path"] = path
            found |= {"client.address": client, "error.type": record.kind}
            found |= {"highway.model": model, "highway.version": version}
            self.tracing.end(record.trace, name, status, found)


def too_long(length: int, limit: int) -> str:
    """Returns the message for a body of more bytes than the limit."""
    return f"the body has {length:,} bytes, more than the limit of {limit:,}."


def _sent_key(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return headers.get(b"x-api-key") or (key.strip() if scheme.lower() == b"bearer" else b"")

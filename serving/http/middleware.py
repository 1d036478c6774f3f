"""ASGI layers around FastAPI: access, size limits and record of each request, and a fast path for predictions."""

import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from serving.engine.settings import Settings
from serving.errors import BusyError, LimitError
from serving.http.compression import CODINGS, DecompressedBody
from serving.http.metrics import BODIES, IN_FLIGHT, track
from serving.http.records import RequestRecord
from serving.keys import Keys, RateLimit
from serving.tracing import REQUEST_ID, TRACEPARENT, Tracing, request_id

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
WRONG_KEY = "the key is missing or wrong. Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
# Turns an error into a response.
OnError = Callable[[Request, Exception], Awaitable[Response]]

# Open without a key: health, and the page, which then asks for the key.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
# Values of `Content-Encoding`: without compression, and all.
_PLAIN = (b"identity", b"")
_CODINGS = (*_PLAIN, *(coding.encode() for coding in CODINGS))


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
    """Checks host, key, rate and size of each request, and records it.

    Args:
        app: the wrapped ASGI app.
        settings: its limits.
        keys: keys that clients must send.
        tracing: records spans.
    """

    def __init__(self, app: App, settings: Settings, keys: Keys, tracing: Tracing) -> None:
        self._app = app
        self._keys, self.tracing = keys, tracing
        self._hosts = frozenset(map(str.lower, settings.hosts))
        self._rate = RateLimit(settings.rate) if settings.rate else None
        self._draining = settings.draining
        self._body = settings.body
        self._bodies = settings.bodies
        self._held = self._in_flight = 0
        track(BODIES, lambda: self._held)
        track(IN_FLIGHT, lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, is_head = 500, scope["method"] == "HEAD"
        headers: dict[bytes, bytes] = dict(scope["headers"])
        record = scope["record"] = self.begin(headers)
        # Every GET route also answers HEAD.
        inner = {**scope, "method": "GET"} if is_head else scope

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(record)]
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        self._in_flight += 1
        coded = headers.get(b"content-encoding", b"identity") not in _PLAIN
        body = _CountedBody(self, DecompressedBody(receive).receive if coded else receive)
        try:
            if refusal := self._refusal(scope["path"], headers, record):
                record.refuse(refusal.kind, refusal.reason)
                await _send_error(recording_send, refusal)
            else:
                with self.tracing.use(record.trace):
                    await self._app(inner, body.receive, recording_send)
        finally:
            self._in_flight -= 1
            body.free()
            # By route: clients can invent any number of paths.
            route = getattr(inner.get("route"), "path", "unknown")
            self._publish(record, scope, route, status)

    def count(self, size: int, total: int) -> None:
        """Counts received bytes.

        Args:
            size: number of bytes; negative when they are freed.
            total: bytes of this request so far.

        Raises:
            LimitError: the request is too large.
            BusyError: all requests together are too large.
        """
        self._held += size
        if total > self._body:
            raise LimitError(self._too_long(total))
        if self._held > self._bodies:
            raise BusyError(f"requests of more than {self._bodies:,} bytes are being answered already.", after=1.0)

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
            reason = f"the key sends more than {self._rate.rate:g} requests per second, its limit."
            return Denial(429, "rate", reason, wait)
        return None

    def enter(self) -> None:
        """Counts a gRPC call, until `leave`."""
        self._in_flight += 1

    def leave(self, route: str, size: int, status: int, record: RequestRecord, client: str) -> None:
        """Publishes the record of a call, and frees the bytes of its message that `count` has counted."""
        self._in_flight -= 1
        self._held -= size
        self._publish(record, {"method": "POST", "path": route, "client": (client,)}, route, status)

    def _refusal(self, path: str, headers: dict[bytes, bytes], record: RequestRecord) -> Denial | None:
        host = _host(headers.get(b"host", b"")) if self._hosts else ""
        if host and host not in self._hosts and not path.startswith("/v2/health/"):
            # A page of another site can make its own name resolve to this machine, and then read the answers.
            reason = f"this endpoint does not answer as {host[:255]!r}. `highway serve --hosts` adds names."
            return Denial(421, "host", reason)
        if denial := self.deny(headers, record, is_open=_is_open(path)):
            return denial
        if (coding := headers.get(b"content-encoding", b"identity").lower()) not in _CODINGS:
            reason = f"the body has encoding {coding.decode('latin-1')!r}. Send it as gzip, deflate or uncompressed."
            return Denial(415, "encoding", reason)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._body:
            return Denial(413, "limit", self._too_long(int(length[:20])))
        return None

    def _headers(self, record: RequestRecord) -> list[tuple[bytes, bytes]]:
        """Returns the headers of every answer."""
        trace = record.trace
        found = [(REQUEST_ID, trace.request_id.encode()), (TRACEPARENT, trace.traceparent.encode())]
        # Clients that reuse their connections should open new ones, to another endpoint.
        return [*found, (b"connection", b"close")] if self._draining.is_set() else found

    def _publish(self, record: RequestRecord, scope: Scope, route: str, status: int) -> None:
        method, path, client = scope["method"], scope["path"], (scope.get("client") or [""])[0]
        record.publish(method, path, route, status, client)
        if record.trace.span is not None:
            model, version = record.about()
            found = {"http.request.method": method, "http.route": route, "url.path": path, "client.address": client}
            found |= {"error.type": record.kind, "highway.model": model, "highway.version": version}
            self.tracing.end(record.trace, f"{method} {route}", status, found)

    def _too_long(self, length: int) -> str:
        return f"the body has {length:,} bytes, more than the limit of {self._body:,}."


class _CountedBody:
    def __init__(self, access: AccessControl, receive: Receive) -> None:
        self._access = access
        self._receive = receive
        self._total = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and (size := len(message.get("body", b""))):
            self._total += size
            self._access.count(size, self._total)
        return message

    def free(self) -> None:
        if self._total:
            self._access.count(-self._total, 0)


class Dispatch:
    """Calls the functions of some routes directly, without FastAPI.

    FastAPI spends more time on routes and parameters than a net does on an image.

    Args:
        app: answers all other requests.
        routes: routes whose functions take only the request and return a `Response`.
        on_error: turns their errors into responses.
    """

    def __init__(self, app: App, routes: Sequence[APIRoute], on_error: OnError) -> None:
        self._app = app
        self._on_error = on_error
        self._routes: dict[tuple[str, str], list[APIRoute]] = {}
        for route in routes:
            for method in route.methods or ():
                self._routes.setdefault((method, _first_segment(route.path)), []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] == "http":
            for route in self._routes.get((scope["method"], _first_segment(scope["path"])), ()):
                if match := route.path_regex.match(scope["path"]):
                    scope.update(path_params=match.groupdict(), route=route)
                    request = _DispatchedRequest(scope, receive)
                    try:
                        response = await route.endpoint(request)
                    except Exception as error:
                        response = await self._on_error(request, error)
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class _DispatchedRequest(Request):
    async def body(self) -> bytes:
        """Returns the whole body, extended as it arrives: joining a large one at the end would block the event loop."""
        whole: bytes | bytearray = b""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            if whole and part:
                whole = whole if isinstance(whole, bytearray) else bytearray(whole)
                whole += part
            else:
                whole = whole or part
        # Callers accept both.
        return cast(bytes, whole)


def _first_segment(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""


def _sent_key(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return headers.get(b"x-api-key") or (key.strip() if scheme.lower() == b"bearer" else b"")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


# Clients send the same few names again and again.
@lru_cache(64)
def _host(value: bytes) -> str:
    """Returns the name in a Host header, without the port."""
    name = value.decode("latin-1").lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]


async def _send_error(send: Send, refusal: Denial) -> None:
    body = orjson.dumps({"error": refusal.reason})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.after is not None:
        headers.append((b"retry-after", str(math.ceil(refusal.after)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""ASGI layers around FastAPI: key, size limits, log and metrics of each request, and a fast path for predictions."""

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, cast

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from serving.errors import BusyError, LimitError
from serving.http.compression import CODINGS, DecompressedBody
from serving.http.metrics import BODIES, IN_FLIGHT, latency, requests, track

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
log = logging.getLogger("highway.access")


class Access:
    """Checks key and size of each request, logs it and measures it.

    Args:
        app: the wrapped ASGI app.
        api_key: key that clients must send; None admits everyone.
        body: largest body of a request, in bytes.
        bodies: maximum bytes of all requests in flight.
    """

    def __init__(self, app: App, api_key: str | None, body: int, bodies: int) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._body = body
        self._bodies = bodies
        self._held = self._in_flight = 0
        track(BODIES, lambda: self._held)
        track(IN_FLIGHT, lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, head = time.perf_counter(), 500, scope["method"] == "HEAD"
        # Every GET route also answers HEAD.
        inner = {**scope, "method": "GET"} if head else scope

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        self._in_flight += 1
        coded = dict(scope["headers"]).get(b"content-encoding", b"identity") not in _PLAIN
        body = _CountedBody(self, DecompressedBody(receive).receive if coded else receive)
        try:
            refusal = self._refusal(scope)
            if refusal:
                await _send_error(recording_send, *refusal)
            else:
                await self._app(inner, body.receive, recording_send)
        finally:
            self._in_flight -= 1
            body.free()
            # Labelled by route: clients can invent any number of paths.
            record(scope, getattr(inner.get("route"), "path", "unknown"), status, time.perf_counter() - start)

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

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Returns whether headers, or the metadata of a gRPC call, have the key."""
        return self._key is None or hmac.compare_digest(_sent_key(headers), self._key)

    def enter(self, size: int) -> None:
        """Counts a gRPC call with a message of some bytes, until `leave`.

        Raises:
            BusyError: all requests together are too large.
        """
        self._in_flight += 1
        self.count(size, size)

    def leave(self, route: str, size: int, status: int, seconds: float) -> None:
        """Records a call that `enter` has counted."""
        self._in_flight -= 1
        self._held -= size
        record({"method": "POST", "path": route}, route, status, seconds)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        if not _is_open(scope["path"]) and not self.admits(headers):
            return 401, WRONG_KEY
        if (coding := headers.get(b"content-encoding", b"identity").lower()) not in _CODINGS:
            return 415, f"the body has the encoding {coding.decode('latin-1')!r}. Send it as gzip, deflate or as it is."
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._body:
            return 413, self._too_long(int(length[:20]))
        return None

    def _too_long(self, length: int) -> str:
        return f"the body has {length:,} bytes, more than the limit of {self._body:,}."


class _CountedBody:
    def __init__(self, access: Access, receive: Receive) -> None:
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
                    response = await self._call(route.endpoint, _Request(scope, receive))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _call(self, endpoint: Callable[..., Any], request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return await self._on_error(request, error)


class _Request(Request):
    async def body(self) -> bytes:
        """Returns the whole body, extended as it arrives: joining 30 MB at the end blocks the event loop for 50 ms."""
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


async def _send_error(send: Send, status: int, message: str) -> None:
    body = orjson.dumps({"error": message})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def record(scope: Scope, route: str, status: int, seconds: float) -> None:
    """Adds a request to the metrics and to the log."""
    requests(route, status).inc()
    latency(route).observe(seconds)
    if log.isEnabledFor(logging.INFO):
        client = scope.get("client")
        line = {
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(1000 * seconds, 3),
        }
        log.info("request", extra=line)

"""ASGI layers around FastAPI: access, size limits and record of each request, and a fast path for predictions."""

import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, cast

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from serving.engine.settings import Settings
from serving.http.compression import CODINGS, DecompressedBody
from serving.requests.access import AccessControl, Denial, too_long
from serving.requests.records import RequestRecord
from serving.tracing import REQUEST_ID, TRACEPARENT

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
# Turns an error into a response.
OnError = Callable[[Request, Exception], Awaitable[Response]]

# Open without a key: health, and the page, which then asks for the key, with the description of the API that it links.
OPEN = ("/", "/openapi.json", "/v2/health/live", "/v2/health/ready")
# Parameters of a path without any.
_NONE: dict[str, str] = {}
# Values of `Content-Encoding`: without compression, and all, with the old name of gzip.
_PLAIN = (b"identity", b"")
_CODINGS = (*_PLAIN, *(coding.encode() for coding in CODINGS), b"x-gzip")


class AccessLayer:
    """Checks host, key, rate and size of each request, and records it.

    Args:
        app: the wrapped ASGI app.
        access: checks and records requests of any protocol.
        settings: limits of the endpoint.
        routes: routes of the app, to record those of the requests that do not reach it.
    """

    def __init__(self, app: App, access: AccessControl, settings: Settings, routes: Sequence[Route]) -> None:
        self._app, self._access, self._routes = app, access, routes
        self._hosts = frozenset(map(str.lower, settings.hosts))
        self._draining = settings.draining
        self._body = settings.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, method, access = 500, scope["method"], self._access
        headers: dict[bytes, bytes] = dict(scope["headers"])
        record = scope["record"] = access.begin(headers)
        # Every GET route also answers HEAD.
        inner = {**scope, "method": "GET"} if method == "HEAD" else scope

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(record)]
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        access.enter()
        coding = headers.get(b"content-encoding", b"").lower()
        body = _CountedBody(access, receive if coding in _PLAIN else DecompressedBody(receive).receive)
        try:
            if denial := _ambiguous(scope, headers) or self._denial(scope["path"], headers, coding, record):
                record.refuse(denial.kind, denial.reason)
                inner.update(_located(inner, self._routes))
                await _send_error(recording_send, denial)
            else:
                with access.tracing.use(record.trace):
                    await self._app(inner, body.receive, recording_send)
        finally:
            # By route: clients can invent any number of paths.
            route, client = getattr(inner.get("route"), "path", "unknown"), (scope.get("client") or [""])[0]
            access.leave(
                record,
                body.total,
                method=method,
                path=scope["path"],
                route=route,
                model=inner.get("path_params", _NONE).get("name", ""),
                status=status,
                client=client,
            )

    def _denial(self, path: str, headers: dict[bytes, bytes], coding: bytes, record: RequestRecord) -> Denial | None:
        host = _host(headers.get(b"host", b"")) if self._hosts else ""
        if host and host not in self._hosts and not path.startswith("/v2/health/"):
            # A page of another site can make its own name resolve to this machine, and then read the answers.
            reason = f"this endpoint does not answer as {host[:255]!r}. `highway serve --hosts` adds names."
            return Denial(421, "host", reason)
        if denial := self._access.deny(headers, record, is_open=_is_open(path)):
            return denial
        if coding not in _CODINGS:
            reason = f"the body has encoding {coding.decode('latin-1')!r}. Send it as gzip, deflate or uncompressed."
            return Denial(415, "encoding", reason)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._body:
            return Denial(413, "limit", too_long(int(length[:20]), self._body))
        return None

    def _headers(self, record: RequestRecord) -> list[tuple[bytes, bytes]]:
        """Returns the headers of every answer."""
        trace = record.trace
        found = [(REQUEST_ID, trace.request_id.encode()), (TRACEPARENT, trace.traceparent.encode())]
        # Clients that reuse their connections should open new ones, to another endpoint.
        return [*found, (b"connection", b"close")] if self._draining.is_set() else found


def record_of(request: Request) -> RequestRecord:
    """Returns the record of a request."""
    return request.scope["record"]


class _CountedBody:
    def __init__(self, access: AccessControl, receive: Receive) -> None:
        self._access = access
        self._receive = receive
        self.total = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and (size := len(message.get("body", b""))):
            self.total += size
            self._access.count(size, self.total)
        return message


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


def _located(scope: Scope, routes: Sequence[Route]) -> dict[str, Any]:
    """Returns what a router adds to the scope of a request: the route, preferably of its method, and its parameters."""
    found: dict[str, Any] = {}
    for route in routes:
        if match := route.path_regex.match(scope["path"]):
            this = {"route": route, "path_params": match.groupdict()}
            if scope["method"] in (route.methods or ()):
                return this
            found = found or this
    return found


def _ambiguous(scope: Scope, headers: dict[bytes, bytes]) -> Denial | None:
    """Returns the answer to a request that names several hosts."""
    # Most requests have no header twice.
    if len(headers) < len(scope["headers"]) and sum(name == b"host" for name, _ in scope["headers"]) > 1:
        return Denial(400, "request", "the request has more than one Host header. Send one.")
    return None


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


# Clients send the same few names again and again.
@lru_cache(64)
def _host(value: bytes) -> str:
    """Returns the name in a Host header, without the port."""
    name = value.decode("latin-1").lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]


async def _send_error(send: Send, denial: Denial) -> None:
    body = orjson.dumps({"error": denial.reason})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if denial.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if denial.after is not None:
        headers.append((b"retry-after", str(math.ceil(denial.after)).encode()))
    await send({"type": "http.response.start", "status": denial.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""What happens around every request: its key, its size, its line in the log, and the metrics."""

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from serving.errors import BusyError, LimitError
from serving.metrics import BODIES, IN_FLIGHT, latency, requests

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# What is open to those without a key: that the server runs, and the page, which then asks for the key.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
log = logging.getLogger("serving.access")


class Access:
    """Wraps an ASGI app.

    Args:
        app: what answers.
        api_key: what clients must send; None lets everybody in.
        body: bytes that a request may have.
        bodies: bytes that all requests together may have that are being answered.
    """

    def __init__(self, app: App, api_key: str | None, body: int, bodies: int) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._body = body
        self._bodies = bodies
        self._held = self._in_flight = 0
        BODIES.set_function(lambda: self._held)
        IN_FLIGHT.set_function(lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, head = time.perf_counter(), 500, scope["method"] == "HEAD"
        # Who may get may ask for the head alone.
        inner = {**scope, "method": "GET"} if head else scope

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        self._in_flight += 1
        body = _Body(self, receive)
        try:
            refused = self._refusal(scope)
            if refused:
                await _answer(sent, *refused)
            else:
                await self._app(inner, body.receive, sent)
        finally:
            self._in_flight -= 1
            body.free()
            _note(scope, inner, status, time.perf_counter() - start)

    def take(self, count: int, of: int) -> None:
        """Counts bytes that have come in.

        Args:
            count: of them; negative when they are no longer held.
            of: bytes of this request up to now.

        Raises:
            LimitError: the request has too many.
            BusyError: all requests together have too many.
        """
        self._held += count
        if of > self._body:
            raise LimitError(self._too_long(of))
        if self._held > self._bodies:
            raise BusyError(f"requests of more than {self._bodies:,} bytes are being answered already.", after=1.0)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        if self._key and not _is_open(scope["path"]) and not hmac.compare_digest(_given(headers), self._key):
            return 401, "the key is missing or wrong. Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
        if (coding := headers.get(b"content-encoding", b"identity").lower()) not in (b"identity", b""):
            return 415, f"the body has the encoding {coding.decode('latin-1')!r}. Send it as it is."
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._body:
            return 413, self._too_long(int(length[:20]))
        return None

    def _too_long(self, length: int) -> str:
        return f"the body has {length:,} bytes, more than the limit of {self._body:,}."


class _Body:
    """The body of one request, counted as it comes."""

    def __init__(self, access: Access, receive: Receive) -> None:
        self._access = access
        self._receive = receive
        self._taken = 0

    async def receive(self) -> Message:
        """The next part."""
        message = await self._receive()
        if message["type"] == "http.request" and (count := len(message.get("body", b""))):
            self._taken += count
            self._access.take(count, self._taken)
        return message

    def free(self) -> None:
        """The request has its answer."""
        if self._taken:
            self._access.take(-self._taken, 0)


def _given(headers: dict[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return headers.get(b"x-api-key") or (key.strip() if scheme.lower() == b"bearer" else b"")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


async def _answer(send: Send, status: int, why: str) -> None:
    body = orjson.dumps({"error": why})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _note(scope: Scope, inner: Scope, status: int, seconds: float) -> None:
    # The route, not the path: clients make up paths without end.
    route = getattr(inner.get("route"), "path", "unknown")
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

"""What happens around every request: its key, the length of its body, its line in the log, and the metrics."""

import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from serving.errors import LimitError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

REQUESTS = Counter("highway_requests_total", "Requests, by route and status.", ["route", "status"])
SECONDS = Histogram(
    "highway_request_seconds", "Time from the head of a request to the end of its answer.", ["route"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)  # fmt: skip
IN_FLIGHT = Gauge("highway_requests_in_flight", "Requests that have no whole answer yet.")
# What is open to those without a key: that the server runs, and the page, which then asks for the key.
OPEN = ("/", "/static", "/v2/health/live", "/v2/health/ready")
log = logging.getLogger("serving.access")


class Access:
    """Wraps an ASGI app.

    Args:
        app: what answers.
        api_key: what clients must send; None lets everybody in.
        body: bytes that a request may have.
    """

    def __init__(self, app: App, api_key: str | None, body: int) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._body = body

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        IN_FLIGHT.inc()
        try:
            refused = self._refusal(scope)
            if refused:
                await _answer(sent, *refused)
            else:
                await self._app(scope, self._limited(receive), sent)
        finally:
            IN_FLIGHT.dec()
            self._note(scope, status, time.perf_counter() - start)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        if self._key is not None and not _is_open(scope["path"]):
            given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(given, self._key):
                return 401, "the key is missing or wrong. Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._body:
            return 413, self._too_long(int(length))
        return None

    def _limited(self, receive: Receive) -> Receive:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._body:
                    raise LimitError(self._too_long(taken))
            return message

        return limited

    def _too_long(self, length: int) -> str:
        return f"the body has {length:,} bytes, more than the limit of {self._body:,}."

    @staticmethod
    def _note(scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        # The route, not the path: clients make up paths without end.
        found = getattr(scope.get("route"), "path", "unknown")
        REQUESTS.labels(found, status).inc()
        SECONDS.labels(found).observe(seconds)
        if log.isEnabledFor(logging.INFO):
            client = scope.get("client")
            line = {
                "time": round(time.time(), 3),
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1000 * seconds, 3),
            }
            log.info(json.dumps(line))


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


async def _answer(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

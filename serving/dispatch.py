"""Predictions go past FastAPI: it takes longer over its routes and their parameters than a net over a picture."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from serving.middleware import App, Receive, Scope, Send

# From an error to its answer.
OnError = Callable[[Request, Exception], Awaitable[Response]]


class Dispatch:
    """Wraps an ASGI app, and answers some of its routes itself, by the same functions.

    Args:
        app: what answers everything else.
        routes: whose functions take the request alone, and give a `Response`.
        on_error: what answers for an error of theirs.
    """

    def __init__(self, app: App, routes: Sequence[APIRoute], on_error: OnError) -> None:
        self._app = app
        self._on_error = on_error
        self._routes: dict[tuple[str, str], list[APIRoute]] = {}
        for route in routes:
            for method in route.methods or ():
                self._routes.setdefault((method, _start(route.path)), []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http":
            for route in self._routes.get((scope["method"], _start(scope["path"])), ()):
                if match := route.path_regex.match(scope["path"]):
                    scope.update(path_params=match.groupdict(), route=route)
                    response = await self._answer(route.endpoint, _Request(scope, receive))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answer(self, endpoint: Callable[..., Any], request: Request) -> Response:
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
        # What takes bytes takes both.
        return cast(bytes, whole)


def _start(path: str) -> str:
    """The first part of a path."""
    return path.split("/", 2)[1] if path.startswith("/") else ""

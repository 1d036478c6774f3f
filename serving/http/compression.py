"""Compressed bodies: gzip, and deflate in its zlib form, as Triton's and TF Serving's clients send and accept them."""

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serving.errors import RequestError

CODINGS = ("gzip", "deflate")
# Bytes that are decompressed before other requests have their turn.
STEP = 2**16
# Answers of fewer bytes are sent as they are; larger ones than `LONG` are compressed in a thread.
SHORT, LONG = 2**10, 2**16
# zlib's numbers for formats: either gzip or zlib, recognized by the header; and each one alone.
_ANY, _FORMATS = 47, {"gzip": 31, "deflate": 15}
# Weight of a coding that a client does not accept.
_NEVER = re.compile(r"q=0(\.0{0,3})?")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class DecompressedBody:
    """Decompresses the body of a request as it arrives, so that limits apply to its expanded size.

    Args:
        receive: returns the compressed parts, as in ASGI.

    Example:
        async def receive():
            return {"type": "http.request", "body": zlib.compress(b"[1, 2]"), "more_body": False}

        assert (await DecompressedBody(receive).receive())["body"] == b"[1, 2]"
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._inflate = zlib.decompressobj(_ANY)
        self._rest = b""
        self._more, self._full, self._started = True, False, False

    async def receive(self) -> MutableMapping[str, Any]:
        """Returns the next part.

        Raises:
            RequestError: the body is not compressed, is incomplete, or continues after its end.
        """
        if self._rest or self._full:
            await asyncio.sleep(0)
        else:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._rest, self._more = message.get("body", b""), message.get("more_body", False)
            self._started = self._started or bool(self._rest)
        part = self._next()
        more = bool(self._rest) or self._full or self._more
        if not more and self._started and not self._inflate.eof:
            raise RequestError("the compressed body ends too early.")
        return {"type": "http.request", "body": part, "more_body": more}

    def _next(self) -> bytes:
        try:
            part = self._inflate.decompress(self._rest, STEP)
        except zlib.error as error:
            raise RequestError(f"the body cannot be decompressed: {error}.") from None
        if self._inflate.unused_data:
            raise RequestError("more bytes follow the compressed body.")
        # All input may be taken while output is still missing.
        self._rest, self._full = self._inflate.unconsumed_tail, len(part) == STEP
        return part


async def compress(body: bytes, accepted: str | None) -> tuple[bytes, dict[str, str]]:
    """Compresses an answer for clients that accept it.

    Args:
        body: the answer.
        accepted: the value of `Accept-Encoding`, if there is one.

    Returns:
        The body to send, and the headers that describe it.
    """
    coding = _accepted_coding(accepted) if accepted else None
    if coding is None or len(body) < SHORT:
        return body, {}
    if len(body) > LONG:
        body = await asyncio.to_thread(_compress, body, coding)
    else:
        body = _compress(body, coding)
    return body, {"content-encoding": coding, "vary": "accept-encoding"}


def _accepted_coding(header: str) -> str | None:
    choices = [choice.partition(";") for choice in header.lower().split(",")]
    wanted = {name.strip() for name, _, weight in choices if not _NEVER.fullmatch(weight.replace(" ", ""))}
    return next((coding for coding in CODINGS if coding in wanted), None)


def _compress(body: bytes, coding: str) -> bytes:
    deflate = zlib.compressobj(1, wbits=_FORMATS[coding])
    return deflate.compress(body) + deflate.flush()

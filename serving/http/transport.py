"""Sends answers: the head of one together with the start of its body, and so that clients that still send get them."""

import asyncio
from collections.abc import Callable
from typing import Any

# Seconds for which a connection lingers, plus one for each `FAST` bytes that still come: 8 Mbit/s.
LINGER, FAST = 5.0, 2**20
# Bytes that a client may send after its answer: 1 GiB.
DISCARDED = 2**30


def refusal(status: bytes, message: bytes, header: bytes = b"") -> bytes:
    """Returns the answer after which a connection is closed.

    Args:
        status: code and phrase.
        message: the reason, for JSON.
        header: a further header, with its line break.

    Example:
        refusal(b"408 Request Timeout", b"the request did not come in time.")
    """
    body = b'{"error":"%s"}' % message
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
    return b"HTTP/1.1 %s\r\n%s%s\r\n%s" % (status, header, head, body)


class AnswerTransport:
    """A transport that sends the head of an answer together with the start of its body, and lingers if necessary.

    uvicorn writes them one after the other. A single write takes half the time, and wakes the client once.

    Closing a socket before everything that arrives has been read resets the connection, and many clients read their
    answer only after they have sent the whole request: they would never see it. A connection that lingers sends nothing
    more, but still receives what the client sends, within limits.

    Args:
        transport: the transport of the connection, which has all other methods.
        linger: called when the connection should be closed; returns whether it has to linger.
    """

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], bool]) -> None:
        self._transport, self._linger = transport, linger
        self._head = b""
        self._discarded = 0
        self._since = 0.0
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends part of an answer; keeps a head until the body follows, or `flush` is called."""
        if self.lingers:
            # An answer to a request before the one that was refused.
            return
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Sends a head that no body follows."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def is_closing(self) -> bool:
        """Returns whether nothing more is sent."""
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection once everything has been sent and, if it has to linger, the client has closed it."""
        self.flush()
        if self.is_closing():
            return
        if self._linger():
            self.lingers, self._since = True, asyncio.get_running_loop().time()
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    def discard(self, data: bytes) -> None:
        """Counts what the client of a connection that lingers still sends."""
        self._discarded += len(data)

    def has_lingered(self, now: float) -> bool:
        """Returns whether the client has sent for too long, or too much, since its answer."""
        return now > self._since + LINGER + self._discarded / FAST or self._discarded > DISCARDED

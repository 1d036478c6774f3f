"""Sends the head of an answer together with the start of its body."""

import asyncio
from typing import Any


class AnswerTransport:
    """A transport that sends the head of an answer together with the start of its body.

    uvicorn writes them one after the other. A single write takes half the time, and wakes the client once.

    Args:
        transport: the transport of the connection, which has all other methods.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends part of an answer; keeps a head until the body follows, or `flush` is called."""
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

    def close(self) -> None:
        """Closes the connection once everything has been sent."""
        self.flush()
        self._transport.close()

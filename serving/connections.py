"""Slow clients are cut off, and nobody takes all connections: a protocol for uvicorn, which limits idle time alone."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.metrics import CONNECTIONS, cut

# Bytes a second from which on the body of a request is not slow, however long it takes: 0.5 Mbit/s.
RATE = 2**16
# Seconds that a client must have been silent to make room for another.
SILENT = 0.25
# Seconds that what is not sent or not read has once the endpoint is to stop.
LAST = 5.0
# File descriptors for all but connections: models, logs, what listens.
RESERVE = 64
_SLOW = b"408 Request Timeout", b"", b"the request did not come in time."
_FULL = b"503 Service Unavailable", b"retry-after: 1\r\n", b"too many connections are open."


@dataclass(frozen=True)
class Limits:
    """Of connections; times in seconds."""

    header: float = 10.0
    """For the head of a request, from its first byte, or from the start of the connection."""
    body: float = 30.0
    """For its body, and a second more for each `RATE` bytes; and for the client to read the answer."""
    idle: float = 75.0
    """Between two requests on one connection."""
    connections: int = 1024
    """In all."""
    address: int = 256
    """From one address."""


@dataclass
class _Open:
    """All connections, and a look at them every now and then: a timer for each request would cost more."""

    limits: Limits
    connections: set["Limited"] = field(default_factory=set)
    by_address: Counter[str] = field(default_factory=Counter)
    watching: bool = False

    def add(self, one: "Limited") -> bool:
        """Takes a connection in, if need be for one that is silent; False if there is no room."""
        if len(self.connections) >= self.limits.connections and not self._make_room(None):
            return False
        if self.by_address[one.address] >= self.limits.address and not self._make_room(one.address):
            return False
        self.connections.add(one)
        self.by_address[one.address] += 1
        CONNECTIONS.inc()
        if not self.watching:
            self.watching = True
            one.loop.call_later(self._pause(), self._look, one.loop)
        return True

    def remove(self, one: "Limited") -> None:
        """Forgets a connection, which may be forgotten already."""
        if one in self.connections:
            self.connections.remove(one)
            self.by_address[one.address] -= 1
            if not self.by_address[one.address]:
                del self.by_address[one.address]
            CONNECTIONS.dec()

    def _make_room(self, address: str | None) -> bool:
        """Closes the connection that has waited longest for its client, of an address or of all."""
        silent = [one for one in self.connections if one.is_silent() and address in (None, one.address)]
        if not silent:
            return False
        longest = min(silent, key=lambda one: one.since)
        if longest.loop.time() - longest.since < SILENT:
            return False
        longest.cut("room")
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for one in list(self.connections):
            one.look(now)
        self.watching = bool(self.connections)
        if self.watching:
            loop.call_later(self._pause(), self._look, loop)

    def _pause(self) -> float:
        return min(self.limits.header, self.limits.body, self.limits.idle, 4.0) / 4


class Limited(HttpToolsProtocol):
    """uvicorn's protocol of one connection, with limits; `protocol` makes one of given limits."""

    opened: _Open
    # What the client is sending: part of a head, or of a body; None if it has sent all of its request.
    sending: Literal["header", "body"] | None
    # When that began, or the last answer ended.
    since: float
    address: str

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts it, or refuses it."""
        super().connection_made(transport)
        self.sending, self.since, self._received = "header", self.loop.time(), 0
        self._unread_since: float | None = None
        self._ends = float("inf")
        # A socket of a file system has no address.
        self.address = self.client[0] if self.client else ""
        if not self.opened.add(self):
            self._refuse(_FULL, "refused")

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room."""
        self.opened.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes in a part of a request."""
        if self.transport.is_closing():
            return
        if self.sending is None:
            self.sending, self.since, self._received = "header", self.loop.time(), 0
        self._received += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The body begins."""
        self.sending, self.since, self._received = "body", self.loop.time(), 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self.sending = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The client's turn, but for what it was sending meanwhile."""
        if self.sending is None:
            self.since = self.loop.time()
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        # As uvicorn does, without its keep-alive timer for each request: `look` closes idle connections.
        self.server_state.total_requests += 1
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does."""
        self._unread_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        """The endpoint is to stop: what is whole is answered, and what is not has a moment left."""
        self._ends = self.loop.time() + LAST
        super().shutdown()

    def is_silent(self) -> bool:
        """Whether it waits for its client."""
        return self.sending is not None or self._unread_since is not None or self._is_free()

    def _is_free(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def look(self, now: float) -> None:
        """Cuts it off if its client is too slow."""
        limits = self.opened.limits
        if self._unread_since is not None:
            if now > min(self._unread_since + limits.body, self._ends):
                self.cut("answer")
        elif self.transport.is_closing():
            # What is written has no more time from now on than another answer.
            self._unread_since = now
        elif self.sending is None:
            if self._is_free() and now > self.since + limits.idle:
                self.transport.close()
        elif self.sending == "header" and self._is_free() and now > self.since + limits.header:
            self._refuse(_SLOW, "header")
        elif self.sending == "body" and now > min(self.since + limits.body + self._received / RATE, self._ends):
            self._refuse(_SLOW, "body")

    def cut(self, why: str) -> None:
        """Closes it without a word."""
        cut(why).inc()
        self.opened.remove(self)
        self.transport.abort()

    def _refuse(self, answer: tuple[bytes, bytes, bytes], why: str) -> None:
        cut(why).inc()
        status, header, said = answer
        # Browsers open connections in advance, and an early answer needs no second one.
        speaks = self.cycle and not self.cycle.response_started if self.sending == "body" else self._received
        if speaks or answer is _FULL:
            head = b"HTTP/1.1 %s\r\n%scontent-type: application/json\r\nconnection: close\r\n" % (status, header)
            body = b'{"error":"%s"}' % said
            self.transport.write(b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body))
        self.transport.close()


def protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Makes what uvicorn talks to its clients by.

    Args:
        limits: of all connections together.

    Returns:
        A class for `uvicorn.Config(http=...)`.

    Example:
        uvicorn.run(app, http=protocol(Limits(header=5)))
    """
    return type("Protocol", (Limited,), {"opened": _Open(limits)})


def possible(connections: int) -> int:
    """Has the system allow as many connections as it will.

    Args:
        connections: how many are wanted.

    Returns:
        How many there can be, by the limit of open files, which is raised to its hard limit if need be.

    Example:
        Limits(connections=possible(10_000))
    """
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(min(connections, soft - RESERVE), 1)

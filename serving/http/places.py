"""Places for connections: how many may be open, which of them makes room, and who checks their time limits."""

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from serving.engine.readiness import AT_ONCE, HEALTH_ONLY
from serving.engine.settings import Limits
from serving.requests.metrics import CONNECTIONS

# Seconds of silence after which a connection may be closed for a new one.
SILENT = 0.25
# Maximum bytes of answers that clients have not read yet; beyond that, the oldest are cut off.
UNREAD = 2**28


class PlacedConnection(Protocol):
    """A connection as `Places` needs it; see `serving.http.connections.LimitedProtocol`."""

    loop: asyncio.AbstractEventLoop
    address: str
    heard: float

    def another(self) -> asyncio.Protocol:
        """Returns a protocol for another connection of the same server."""

    def is_silent(self) -> bool:
        """Returns whether it is waiting for its client."""

    def has_asked(self) -> bool:
        """Returns whether the head of a request has arrived."""

    def check(self, now: float) -> None:
        """Closes the connection if its client is too slow."""

    def cut(self, reason: str) -> None:
        """Closes the connection without an answer."""

    def make_way(self) -> None:
        """Closes the connection at once, with the answer that too many are open unless it has one."""


@dataclass
class Places:
    """All open connections, checked periodically: a timer for each request would cost more.

    Args:
        limits: their numbers and time limits.
        listening: the socket that they come from, if this process alone accepts them.

    Example:
        Places(Limits(connections=100))
    """

    limits: Limits
    listening: socket.socket | None = None
    connections: set[PlacedConnection] = field(default_factory=set)
    by_address: Counter[str] = field(default_factory=Counter)
    # Those beyond the limits, the oldest first.
    health_only: dict[PlacedConnection, None] = field(default_factory=dict)
    # Bytes of unread answers, the oldest first.
    unread: dict[PlacedConnection, int] = field(default_factory=dict)
    accepted: set[asyncio.Task[None]] = field(default_factory=set)
    checking: bool = False

    def add(self, one: PlacedConnection) -> bool:
        """Adds a connection, if necessary in place of a silent one; returns False if it is for health only."""
        if not self.checking:
            self.checking = True
            one.loop.call_later(self._pause(), self._check, one.loop)
        full = len(self.connections) >= self.limits.connections and not self._make_room(None)
        if full or (self.by_address[one.address] >= self.limits.address and not self._make_room(one.address)):
            self._add_for_health(one)
            return False
        self.connections.add(one)
        self.by_address[one.address] += 1
        CONNECTIONS.inc()
        return True

    def _add_for_health(self, one: PlacedConnection) -> None:
        self.health_only[one] = None
        if len(self.health_only) > HEALTH_ONLY:
            # The oldest that has not asked yet; the new one itself, if all others have.
            oldest = next(other for other in self.health_only if not other.has_asked())
            del self.health_only[oldest]
            oldest.make_way()
        if self.listening and not self.accepted:
            self._accept_waiting(self.listening, one)

    def _accept_waiting(self, listening: socket.socket, one: PlacedConnection) -> None:
        """Accepts connections that wait, so that questions about health do not wait behind others that are refused.

        uvloop accepts one per turn of the event loop, which takes long while hundreds of requests are answered.
        """

        async def connect(made: socket.socket) -> None:
            # The client may be gone.
            with suppress(OSError):
                await one.loop.connect_accepted_socket(one.another, made)

        for _ in range(AT_ONCE):
            try:
                made, _ = listening.accept()
            except OSError:
                # None waits, or no more files can be opened.
                return
            task = one.loop.create_task(connect(made))
            self.accepted.add(task)
            task.add_done_callback(self.accepted.discard)

    def remove(self, one: PlacedConnection) -> None:
        """Removes a connection, unless it has been removed already."""
        self.unread.pop(one, None)
        self.health_only.pop(one, None)
        if one in self.connections:
            self.connections.remove(one)
            self.by_address[one.address] -= 1
            if not self.by_address[one.address]:
                del self.by_address[one.address]
            CONNECTIONS.dec()

    def add_unread(self, one: PlacedConnection, size: int) -> None:
        """Records an answer that its client has yet to read, and cuts off the oldest ones beyond `UNREAD` bytes."""
        self.unread[one] = size
        while sum(self.unread.values()) > UNREAD:
            next(iter(self.unread)).cut("unread")

    def _make_room(self, address: str | None) -> bool:
        """Closes the connection that has been silent longest, of one address or of all."""
        silent = [one for one in self.connections if one.is_silent() and address in (None, one.address)]
        if not silent:
            return False
        longest = min(silent, key=lambda one: one.heard)
        if longest.loop.time() - longest.heard < SILENT:
            return False
        longest.cut("room")
        return True

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for one in [*self.connections, *self.health_only]:
            one.check(now)
        self.checking = bool(self.connections or self.health_only)
        if self.checking:
            loop.call_later(self._pause(), self._check, loop)

    def _pause(self) -> float:
        return min(self.limits.header, self.limits.body, self.limits.idle, 4.0) / 4

"""Limits on connections that gRPC itself lacks: on their number from one address, and on unread answers."""

import asyncio
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from serving.requests.metrics import cut
from serving.rpc.calls import CallLimits, Client

# Open files of this process, on Linux and macOS.
_FILES = Path("/dev/fd")
_INTERVAL = 1.0


class ConnectionLimits:
    """Closes connections beyond a number from one address, the newest first, and those with answers that nobody reads.

    gRPC keeps its sockets to itself. This finds them among the open files of the process, and shuts them down, which
    looks to gRPC as if the client had closed them.

    Args:
        port: the port that gRPC listens on.
        limit: maximum number of connections from one address.
        calls: limits on calls, which knows the clients that have not read an answer in time.
    """

    def __init__(self, port: int, limit: int, calls: CallLimits) -> None:
        self._port, self._limit, self._calls = port, limit, calls
        # Order in which the connections were seen first.
        self._seen: dict[Client, int] = {}
        self._count = 0

    async def enforce(self) -> None:
        """Checks every second."""
        while True:
            await asyncio.sleep(_INTERVAL)
            # The open files cannot be listed if no descriptor is left.
            with suppress(OSError):
                await asyncio.to_thread(self.check)

    def check(self) -> None:
        """Checks once."""
        closed = dict.fromkeys(self._surplus(), "address") | dict.fromkeys(self._calls.late(), "answer")
        if not closed:
            return
        for client, connection in self._connections():
            if client in closed:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                    cut(closed[client]).inc()

    def _surplus(self) -> set[Client]:
        """Returns the clients whose connections are too many."""
        if sum(1 for _ in _FILES.iterdir()) <= self._limit:
            return set()
        by_address: dict[str, list[Client]] = defaultdict(list)
        for client, _ in self._connections():
            if client not in self._seen:
                self._count += 1
                self._seen[client] = self._count
            by_address[client[0]].append(client)
        opened = {client for clients in by_address.values() for client in clients}
        self._seen = {client: order for client, order in self._seen.items() if client in opened}
        return {
            client
            for clients in by_address.values()
            for client in sorted(clients, key=self._seen.__getitem__)[self._limit :]
        }

    def _connections(self) -> Iterator[tuple[Client, socket.socket]]:
        """Yields the client and a duplicate of each connection; gRPC may close its own at any time."""
        for file in _FILES.iterdir():
            try:
                number = os.dup(int(file.name))
            except OSError:
                continue
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)
                continue
            with closing(socket.socket(fileno=number)) as connection, suppress(OSError):
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == self._port:
                    address, port = connection.getpeername()[:2]
                    # As gRPC names clients that reach an IPv6 socket by IPv4.
                    yield (address.removeprefix("::ffff:"), port), connection

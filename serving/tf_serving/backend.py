"""The backend that leaves the computing to a TF Serving server over the same repository."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from serving import checks, manifest
from serving.backends import Served
from serving.errors import UnavailableError
from serving.model import open_sight
from serving.settings import Settings
from serving.tf_serving.connection import AVAILABLE, Connection, refused
from serving.tf_serving.remote import CHECK, Remote

T = TypeVar("T")


class TfServingBackend:
    """A `serving.backends.Backend`.

    Args:
        settings: of the endpoint.
        address: of the server, HOST:PORT (gRPC) or http://HOST:PORT (REST).
    """

    def __init__(self, settings: Settings, address: str) -> None:
        self._settings = settings
        self._address = address

    async def start(self) -> None:
        """Opens the connection; the server need not be there yet."""
        self._loop = asyncio.get_running_loop()
        self._connection = connect(self._address)

    def open(self, folder: Path) -> Served:
        """Opens a version once the server has it, after a look at each of its files and at what the server computes.

        Raises:
            ModelError: the version is incomplete, damaged, not signed as it must be, or contradicts itself.
            UnavailableError: the server does not have it yet, has another, or cannot be reached.
        """
        name, version = folder.parent.name, int(folder.name)
        trusted = self._settings.trust
        content = manifest.read(folder, trusted)
        checks.place(folder, content)
        # First, as this is asked at every look until the server has the version.
        state = self._wait(self._connection.state(name, version, CHECK))
        if state != AVAILABLE:
            raise UnavailableError(
                f"TF Serving at {self._address} says {state} of version {version} of model {name!r}."
            )
        remote = Remote(
            name, version, open_sight(folder, content, closed=bool(trusted)), self._connection, self._settings
        )
        self._wait(remote.compare())
        return remote

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except TimeoutError:
            raise refused(self._address, f"no answer within {CHECK:g} s") from None


def connect(address: str) -> Connection:
    """A connection to a server, which need not be there yet.

    Args:
        address: HOST:PORT for gRPC, or http://HOST:PORT for REST.

    Example:
        await connect("localhost:8500").state("digits", 1, timeout=5)
    """
    # Each brings a client library that the other does not need.
    if "://" in address:
        from serving.tf_serving.over_rest import RestConnection

        return RestConnection(address)
    from serving.tf_serving.over_grpc import GrpcConnection

    return GrpcConnection(address)

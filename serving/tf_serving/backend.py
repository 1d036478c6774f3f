"""A backend that predicts through a TF Serving server on the same repository."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from serving import checks, manifest
from serving.engine.backends import Outputs, ServedVersion
from serving.engine.settings import Settings
from serving.errors import BusyError, UnavailableError
from serving.manifest import Manifest
from serving.model import Seen, Version, open_without_graph
from serving.reference import Samples
from serving.statistics import Statistics
from serving.tf_serving.connection import AVAILABLE, Connection, refused

T = TypeVar("T")
# Seconds that a server has to report the state of a version, and to answer the first request for it.
CHECK = 5.0


class TfServingBackend:
    """A `serving.engine.backends.Backend`.

    Args:
        settings: settings of the endpoint.
        address: address of the server, HOST:PORT (gRPC) or http://HOST:PORT (REST).
    """

    def __init__(self, settings: Settings, address: str) -> None:
        self._settings = settings
        self._address = address

    async def start(self) -> None:
        """Opens the connection; the server may still be starting."""
        self._loop = asyncio.get_running_loop()
        self._connection = connect(self._address)

    def open(self, folder: Path) -> ServedVersion:
        """Checks all files of a version, and the predictions of the server once it has the version.

        Raises:
            ModelError: the version is incomplete, damaged, not signed as required, or contradicts itself.
            SmokeTestError: its `picture.onnx` failed.
            UnavailableError: the server does not have it yet, has another one, or cannot be reached.
        """
        name, version = folder.parent.name, int(folder.name)
        trusted = self._settings.trust
        content = manifest.read(folder, trusted)
        checks.place(folder, content)
        # Asked first, because `open` is called again and again until the server has the version.
        state = self._wait(self._connection.state(name, version, CHECK))
        if state != AVAILABLE:
            raise UnavailableError(
                f"TF Serving at {self._address} reports {state} for version {version} of model {name!r}."
            )
        opened = open_without_graph(folder, content, closed=bool(trusted))
        remote = RemoteVersion(name, version, opened, self._connection, self._settings)
        self._wait(remote.compare())
        checks.conversion(opened)
        return remote

    def rest(self) -> None:
        """Does nothing."""

    def interrupt(self) -> None:
        """Does nothing: each request to the server has a time limit."""

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except TimeoutError:
            raise refused(self._address, f"no answer within {CHECK:g} s") from None


@dataclass
class RemoteVersion:
    """A `serving.engine.backends.ServedVersion`.

    Args:
        name: name of the model on the server.
        version: its number.
        opened: the version in this process, which converts images.
        connection: connection to the server.
        settings: settings of the endpoint.
        statistics: counts and times of its requests; batches are those of the server.
    """

    name: str
    version: int
    opened: Version
    connection: Connection
    settings: Settings
    platform = "tensorflow_savedmodel"
    # A SavedModel does not return them.
    predict_maps = None
    statistics: Statistics = field(default_factory=Statistics)
    _images: int = 0

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.opened.manifest

    @property
    def samples(self) -> Samples | None:
        """Its reference images or rows."""
        return self.opened.samples

    @property
    def side(self) -> int:
        """Length of the shorter side down to which image files are scaled."""
        return self.opened.side

    @property
    def waiting(self) -> int:
        """Images in requests to the server."""
        return self._images

    def see(self, rgba: np.ndarray, segments: bool) -> Seen:
        """Converts an image."""
        return self.opened.see(rgba, segments)

    async def predict(self, images: np.ndarray, lone: bool = False) -> Outputs:  # noqa: ARG002 - waits for the server
        """Predicts; concurrent requests are batched by the server."""
        if self._images and self._images + len(images) > self.settings.queue:
            unit = self.manifest.unit
            message = f"{self._images} {unit}s are with TF Serving already; the limit is {self.settings.queue}."
            raise BusyError(message, after=1.0)
        # A server refuses more than its own largest batch, and may refuse an empty one.
        size = self.settings.batch
        parts = [images[start : start + size] for start in range(0, len(images), size)]
        self._images += len(images)
        try:
            found = await asyncio.gather(*(self._predict_part(part, self.settings.timeout) for part in parts))
        finally:
            self._images -= len(images)
        if len(found) == 1:
            return found[0]
        return {
            name: np.concatenate([np.zeros((0, *self._shape(name)), np.float32), *(part[name] for part in found)])
            for name in self.manifest.computed
        }

    async def ready(self) -> bool:
        """Returns whether the server answers and has the version."""
        try:
            return await self.connection.state(self.name, self.version, CHECK) == AVAILABLE
        except (UnavailableError, TimeoutError):
            return False

    async def compare(self) -> None:
        """Compares predictions of the server with those of the Keras model.

        Raises:
            UnavailableError: the server has another model under this name, or does not answer.
            TimeoutError: it does not answer in time.
        """
        samples = self.opened.samples
        if samples is None:
            shape, dtype = self.manifest.input.shape[1:], self.manifest.input.dtype
            await self._predict_part(np.zeros((1, *shape), dtype), CHECK)
            return
        found = (await self._predict_part(samples.inputs, CHECK))[self.manifest.predicted]
        if not checks.agrees(found, samples, self.manifest):
            raise UnavailableError(
                f"TF Serving at {self.connection.address} does not predict like version {self.version} of "
                f"model {self.name!r}. It must serve the same repository as the endpoint."
            )

    async def _predict_part(self, images: np.ndarray, timeout: float) -> dict[str, np.ndarray]:
        computed = self.manifest.computed
        found = await self.connection.predict(self.name, self.version, images, computed, timeout)
        for name in computed:
            if found[name].shape != (len(images), *self._shape(name)):
                raise refused(
                    self.connection.address,
                    f"{name} of model {self.name!r} have the shape {found[name].shape} for {len(images)} "
                    f"{self.manifest.unit}s",
                )
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(size or 0 for size in self.manifest.outputs[name].shape[1:])


def connect(address: str) -> Connection:
    """Returns a connection to a server, which may still be starting.

    Args:
        address: HOST:PORT for gRPC, or http://HOST:PORT for REST.

    Example:
        await connect("localhost:8500").state("digits", 1, timeout=5)
    """
    # Each imports a client library that the other does not need.
    if "://" in address:
        from serving.tf_serving.over_rest import RestConnection

        return RestConnection(address)
    from serving.tf_serving.over_grpc import GrpcConnection

    return GrpcConnection(address)

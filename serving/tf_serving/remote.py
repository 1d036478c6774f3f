"""A model version that a TF Serving server computes; what is known of it comes from the repository."""

import asyncio
from dataclasses import dataclass

import numpy as np

from serving.backends import Outputs
from serving.checks import TOLERANCE
from serving.errors import BusyError, UnavailableError
from serving.manifest import PROBABILITIES, Manifest
from serving.model import Sight
from serving.settings import Settings
from serving.tf_serving.connection import AVAILABLE, Connection, refused

# Seconds within which a server must tell the state of a version, and answer the first request for it.
CHECK = 5.0


@dataclass
class Remote:
    """A `serving.backends.Served`.

    Args:
        name: of the model, as the server knows it.
        version: its number.
        sight: what it makes of pictures, here.
        connection: to the server.
        settings: of the endpoint.
    """

    name: str
    version: int
    sight: Sight
    connection: Connection
    settings: Settings
    platform = "tensorflow_savedmodel"
    _images: int = 0

    @property
    def manifest(self) -> Manifest:
        """What is known of it."""
        return self.sight.manifest

    @property
    def waiting(self) -> int:
        """Pictures that are on their way to the server or back."""
        return self._images

    def see(self, rgba: np.ndarray) -> np.ndarray:
        """What the net sees of a picture."""
        return self.sight.see(rgba)

    async def predict(self, images: np.ndarray) -> Outputs:
        """Predicts; requests are on their way at the same time, and the server puts them together."""
        if self._images and self._images + len(images) > self.settings.queue:
            raise BusyError(
                f"{self._images} images are on their way already, the limit is {self.settings.queue}.", after=1.0
            )
        # A server refuses more than its own largest batch, and may refuse less than one picture.
        size = self.settings.batch
        parts = [images[start : start + size] for start in range(0, len(images), size)]
        self._images += len(images)
        try:
            found = await asyncio.gather(*(self._part(part, self.settings.timeout) for part in parts))
        finally:
            self._images -= len(images)
        if len(found) == 1:
            return found[0]
        return {
            name: np.concatenate([np.zeros((0, *self._shape(name)), np.float32), *(part[name] for part in found)])
            for name in self.manifest.computed
        }

    async def ready(self) -> bool:
        """Whether the server has it, and answers."""
        try:
            return await self.connection.state(self.name, self.version, CHECK) == AVAILABLE
        except (UnavailableError, TimeoutError):
            return False

    async def compare(self) -> None:
        """Compares what the server gives for some pictures with what the Keras model gave.

        Raises:
            UnavailableError: the server has another model under this name, or does not answer.
            TimeoutError: it does not answer in time.
        """
        kept = self.sight.samples
        if kept is None:
            await self._part(np.zeros((1, *self.manifest.input.shape[1:]), np.uint8), CHECK)
            return
        found = (await self._part(kept.images, CHECK))[PROBABILITIES]
        if not np.allclose(found, kept.probabilities, rtol=0, atol=TOLERANCE):
            raise UnavailableError(
                f"TF Serving at {self.connection.address} computes something else than version {self.version} of "
                f"model {self.name!r}. It must serve the same repository as the endpoint."
            )

    async def _part(self, images: np.ndarray, timeout: float) -> dict[str, np.ndarray]:
        computed = self.manifest.computed
        found = await self.connection.predict(self.name, self.version, images, computed, timeout)
        for name in computed:
            if found[name].shape != (len(images), *self._shape(name)):
                raise refused(
                    self.connection.address,
                    f"{name} of model {self.name!r} has the shape {found[name].shape} for {len(images)} pictures",
                )
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(size or 0 for size in self.manifest.outputs[name].shape[1:])

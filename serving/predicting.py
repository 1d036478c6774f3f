"""From a request's pictures to a model's outputs, within the limits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from serving.backends import Outputs, Served
from serving.decoding import Decoder
from serving.errors import BusyError, GoneError, LimitError, OutputError, SlowError
from serving.offload import SMALL, Offload
from serving.protocols.request import Request
from serving.settings import Settings

T = TypeVar("T")


class Predicted(NamedTuple):
    """What came of a request."""

    served: Served
    """The version that answered."""
    images: np.ndarray
    """What the net saw, uint8 `[n, height, width, channels]`."""
    outputs: Outputs
    """What it computed; see `serving.backends.complete`."""


@dataclass
class Predictor:
    """What all routes predict with.

    Args:
        settings: the limits.
        executor: where small picture files are decoded.
        look: brings what is served up to date; called in another thread.
        processes: where large bodies are read and large answers written.
    """

    settings: Settings
    executor: Executor
    look: Callable[[], None]
    processes: Offload = field(default_factory=lambda: Offload(1))
    _decoder: Decoder = field(init=False)
    _decoding: int = field(default=0, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        limits = self.settings
        self._decoder = Decoder(self.executor, limits.decoders, limits.large, limits.pixels)

    def close(self) -> None:
        """Ends the processes that decode large pictures."""
        self._decoder.close()

    async def predict(self, served: Served, request: Request, find: Callable[[], Served]) -> Predicted:
        """Decodes, if need be, and predicts.

        Args:
            served: the model version.
            request: the pictures.
            find: finds the version again, should it be gone.

        Returns:
            What came of it.

        Raises:
            UnknownModelError: the version is gone, and none is in its place.
            LimitError: too many pictures.
            PictureError: one of the files cannot be decoded.
            BusyError: too much is waiting.
            SlowError: it took too long.
            OutputError: the model gave what is no number.
        """
        count = len(request.images if request.images is not None else request.files or ())
        if count > self.settings.pictures:
            raise LimitError(f"{count} pictures in one request are more than the limit of {self.settings.pictures}.")
        try:
            async with asyncio.timeout(self.settings.timeout):
                try:
                    return await self._predicted(served, request)
                except GoneError:
                    # A server drops a version between two looks at what it has.
                    if (other := await self._found(served, find)) is served:
                        raise
                    return await self._predicted(other, request)
        except TimeoutError:
            raise self._slow() from None

    async def offload(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Reads a body or writes an answer, a large one in another process.

        Args:
            size: bytes of JSON to read, or numbers to write.
            function: see `serving.offload.Offload.run`.
            arguments: of the function.

        Raises:
            SlowError: it took too long.
        """
        if size <= SMALL:
            return function(*arguments)
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await self.processes.run(function, *arguments)
        except TimeoutError:
            raise self._slow() from None

    def _slow(self) -> SlowError:
        return SlowError(f"the prediction took longer than {self.settings.timeout:g} s. Try again later.")

    async def _predicted(self, served: Served, request: Request) -> Predicted:
        images = request.images if request.images is not None else await self._seen(served, request)
        outputs = await served.predict(images)
        _check_numbers(outputs, served)
        return Predicted(served, images, outputs)

    async def _found(self, gone: Served, find: Callable[[], Served]) -> Served:
        """What is in the place of a version, after another look if need be."""
        async with self._looking:
            if (found := find()) is gone:
                await asyncio.get_running_loop().run_in_executor(self.executor, self.look)
                found = find()
        return found

    async def _seen(self, served: Served, request: Request) -> np.ndarray:
        files = request.files or []
        names = request.names or [f"picture {number + 1}" for number in range(len(files))]
        if self._decoding and self._decoding + len(files) > self.settings.queue:
            why = f"{self._decoding} picture files are waiting already, the limit is {self.settings.queue}."
            raise BusyError(why, after=1.0)
        self._decoding += len(files)
        try:
            # One after another: a request of many large pictures holds one of them in memory, and one process.
            decode = self._decoder.decode
            seen = [await decode(file, name, served.see) for name, file in zip(names, files, strict=True)]
        finally:
            self._decoding -= len(files)
        return np.stack(seen) if seen else np.zeros((0, *served.manifest.input.shape[1:]), np.uint8)


def _check_numbers(outputs: Outputs, served: Served) -> None:
    # JSON has no word for NaN, and a class that was found from it would look like an answer.
    for name, value in outputs.items():
        if not np.isfinite(value).all():
            manifest, wrong = served.manifest, int(np.argmin(np.isfinite(value).all(axis=-1)))
            raise OutputError(
                f"version {manifest.version} of model {manifest.name!r} gave {name} that are no numbers (NaN or "
                f"infinite) for picture {wrong + 1}. The model is at fault, not the request: serve another version."
            )

"""What answers for one model version, wherever it is computed."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from serving import checks
from serving.batching import Batcher
from serving.manifest import CLASS_ID, LABEL, PROBABILITIES, Manifest
from serving.model import Model, open_version
from serving.settings import Settings

# Arrays by name; `label` is a list of strings.
Outputs = Mapping[str, Any]


class Served(Protocol):
    """One version of a model."""

    @property
    def manifest(self) -> Manifest:
        """What is known of it."""

    @property
    def platform(self) -> str:
        """What computes it, by its name in the Open Inference Protocol."""

    @property
    def waiting(self) -> int:
        """Pictures that wait in this process to be predicted."""

    def see(self, rgba: np.ndarray) -> np.ndarray:
        """What the net sees of a picture; see `serving.model.Model`."""

    async def predict(self, images: np.ndarray) -> Outputs:
        """Probabilities, and gate means if it has them, of uint8 `[n, height, width, channels]`.

        Raises:
            BusyError: too much is waiting.
            GoneError: what computes it no longer has it.
            UnavailableError: what computes it cannot be reached.
            TimeoutError: it took too long.
        """

    async def ready(self) -> bool:
        """Whether it would answer now."""


class Backend(Protocol):
    """What opens model versions, and computes them."""

    async def start(self) -> None:
        """Makes ready to open; called on the event loop that predictions are asked on."""

    def open(self, folder: Path) -> Served:
        """Opens a version; called in another thread.

        Raises:
            ModelError: it is incomplete or damaged, or cannot be loaded.
            UnavailableError: what computes it cannot be reached, or does not have it yet.
        """

    async def close(self) -> None:
        """Ends what `start` began; nothing is asked any more."""


@dataclass(frozen=True)
class InProcess:
    """A version that ONNX Runtime computes in this process."""

    model: Model
    batcher: Batcher
    platform = "onnxruntime_onnx"

    @property
    def manifest(self) -> Manifest:
        """What is known of it."""
        return self.model.manifest

    @property
    def waiting(self) -> int:
        """Pictures that wait for the batch that is being computed."""
        return self.batcher.waiting

    def see(self, rgba: np.ndarray) -> np.ndarray:
        """What the net sees of a picture."""
        return self.model.see(rgba)

    async def predict(self, images: np.ndarray) -> Outputs:
        """Predicts, together with whatever else is waiting."""
        return await self.batcher.predict(images)

    async def ready(self) -> bool:
        """It always would."""
        return True


@dataclass(frozen=True)
class InProcessBackend:
    """Opens versions for ONNX Runtime."""

    settings: Settings
    executor: Executor
    measured: Callable[[str], Callable[[int, float], object]]
    """From a model's name to what is told the pictures and seconds of each of its batches."""

    async def start(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """Nothing is left open."""

    def open(self, folder: Path) -> Served:
        """Loads a version, after a look at each of its files, and tries it.

        Raises:
            ModelError: it is incomplete, damaged or not signed as it must be, cannot be loaded, or contradicts itself.
        """
        model = open_version(folder, trusted=self.settings.trust)
        checks.place(folder, model.manifest)
        checks.trial(model)
        measured = self.measured(model.manifest.name)
        limits = self.settings
        batcher = Batcher(model.predict, limits.batch, limits.queue, self.executor, measured, limits.threads)
        return InProcess(model, batcher)


def complete(outputs: Outputs, manifest: Manifest) -> dict[str, Any]:
    """All outputs that a manifest names: the class and its name are found from probabilities."""
    classes = np.argmax(outputs[PROBABILITIES], axis=-1)
    found = {CLASS_ID: classes, LABEL: [manifest.labels[index] for index in classes], **outputs}
    return {name: found[name] for name in manifest.outputs}


def values(outputs: Outputs) -> int:
    """Counts what an answer has to write."""
    return sum(value.size if isinstance(value, np.ndarray) else len(value) for value in outputs.values())

"""Backends: they open model versions and predict with them."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from serving import checks, files, manifest
from serving.engine.batching import Batcher
from serving.engine.crashes import Watchdog
from serving.engine.processes import ChildProcesses
from serving.engine.settings import Settings
from serving.engine.trials import VersionTrials
from serving.errors import ModelError
from serving.manifest import CLASS_ID, LABEL, ONNX, PROBABILITIES, VALUE, Manifest
from serving.model import Model, Seen, open_version
from serving.reference import Samples
from serving.session import load_runtime
from serving.statistics import Statistics

# Arrays by name; `label` is a list of strings.
Outputs = Mapping[str, Any]
# Seconds that a version has to open and make its first prediction.
SMOKE_TEST = 60.0
# Added to the nice value of the process that tries versions: the event loop must not wait for a core. It gets a third
# of the share of the others, as a version should be loaded under load, too.
NICE = 5


class ServedVersion(Protocol):
    """One version of a model."""

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""

    @property
    def samples(self) -> Samples | None:
        """Its reference images or rows; None if it was exported without them."""

    @property
    def side(self) -> int:
        """Length of the shorter side down to which image files are scaled; see `serving.model.Version`."""

    @property
    def platform(self) -> str:
        """Name of the backend in the Open Inference Protocol."""

    @property
    def waiting(self) -> int:
        """Images in this process that wait for a prediction."""

    @property
    def predict_maps(self) -> Callable[[np.ndarray], Awaitable[Outputs]] | None:
        """Computes maps of gates like `predict`; None if the version has none, or its backend cannot compute them."""

    @property
    def statistics(self) -> Statistics:
        """Counts and times of its requests in this process."""

    def see(self, rgba: np.ndarray, segments: bool) -> Seen:
        """Converts an image; see `serving.model.Version`."""

    async def predict(self, images: np.ndarray, lone: bool = False) -> Outputs:
        """Predicts uint8 `[n, height, width, channels]`, or rows, float32 `[n, columns]`: the computed outputs.

        Args:
            images: the images or rows.
            lone: whether no other request is known to be in progress.

        Raises:
            BusyError: the queue is full.
            GoneError: the backend no longer has the version.
            UnavailableError: the backend cannot be reached.
            TimeoutError: it took too long.
        """

    async def ready(self) -> bool:
        """Returns whether it can predict now."""


class Backend(Protocol):
    """Opens model versions."""

    async def start(self) -> None:
        """Prepares; called on the event loop that predictions run on."""

    def open(self, folder: Path) -> ServedVersion:
        """Opens a version; called in another thread.

        Raises:
            ModelError: it is incomplete or damaged, or cannot be loaded.
            UnavailableError: the backend cannot be reached, or does not have it yet.
            LoadingError: it is still being tried; call `open` again for the outcome.
            SmokeTestError: its smoke test failed, crashed, or took too long.
        """

    def rest(self) -> None:
        """Frees the resources that only `open` needs; called when no version is left to open."""

    def interrupt(self) -> None:
        """Makes a running `open` fail soon, and every later one."""

    async def close(self) -> None:
        """Ends what `start` began; there are no further calls."""


@dataclass(frozen=True)
class InProcessVersion:
    """A version that ONNX Runtime computes in this process."""

    model: Model
    batcher: Batcher
    convert: Callable[[np.ndarray, bool], Seen]
    maps: Batcher | None
    platform = "onnxruntime_onnx"

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.model.manifest

    @property
    def samples(self) -> Samples | None:
        """Its reference images."""
        return self.model.samples

    @property
    def side(self) -> int:
        """Side to which image files are scaled down."""
        return self.model.side

    @property
    def waiting(self) -> int:
        """Images in the queue."""
        return self.batcher.waiting

    @property
    def predict_maps(self) -> Callable[[np.ndarray], Awaitable[Outputs]] | None:
        """Computes maps of gates; None if the version has none."""
        return self.maps.predict if self.maps else None

    @property
    def statistics(self) -> Statistics:
        """Counts and times of its requests."""
        return self.batcher.statistics

    def see(self, rgba: np.ndarray, segments: bool) -> Seen:
        """Converts an image."""
        return self.convert(rgba, segments)

    async def predict(self, images: np.ndarray, lone: bool = False) -> Outputs:
        """Predicts, together with other requests that are waiting."""
        return await self.batcher.predict(images, lone)

    async def ready(self) -> bool:
        """Returns true: it is loaded."""
        return True


@dataclass
class InProcessBackend:
    """Opens versions for ONNX Runtime, each first in a child process.

    A graph may crash ONNX Runtime or run forever: then only the child is lost, and the version is refused. If that
    happens on a later image, this process ends.
    """

    settings: Settings
    executor: Executor
    measured: Callable[[str], Callable[[int, float], object]]
    """Returns, for a model's name, a function to call with the images and seconds of each of its batches."""
    children: ChildProcesses = field(default_factory=lambda: ChildProcesses(nice=NICE, seconds=SMOKE_TEST))
    patience: float | None = None
    """See `VersionTrials`."""
    _trials: VersionTrials = field(init=False)
    _watchdog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self._trials = VersionTrials(self.children, self.patience)
        # Nobody waits for a prediction for longer than the time limit of a request.
        self._watchdog = Watchdog(max(SMOKE_TEST, 2 * self.settings.timeout))

    async def start(self) -> None:
        """Loads ONNX Runtime now: a later import would block the event loop."""
        load_runtime()

    async def close(self) -> None:
        """Ends the child processes and the watchdog."""
        self._trials.close()
        self._watchdog.close()

    def rest(self) -> None:
        """Ends child processes that try no version, to free their memory."""
        self.children.end_idle()

    def interrupt(self) -> None:
        """Kills the child processes."""
        self._trials.close()

    def open(self, folder: Path) -> ServedVersion:
        """Checks all files of a version, tests it in a child process, and loads it.

        Raises:
            ModelError: it is incomplete, damaged, not signed as required, cannot be loaded, or contradicts itself.
            LoadingError: its smoke test goes on in the background.
            SmokeTestError: its smoke test failed, crashed, or took too long.
        """
        limits, crashes = self.settings, self.settings.crashes
        # Refuses damaged versions, and those still being copied, without a child process.
        content = manifest.read(folder, limits.trust)
        self._trials.check_ended(folder, content)
        files.verify(folder, content, closed=bool(limits.trust))
        checks.place(folder, content)
        # Includes the digest of the graph: a version may be replaced under the same number.
        version = f"{content.name}/{content.version} {content.files[ONNX].sha256}"
        if crashes and crashes.caused_by(version):
            raise ModelError(
                f"a worker process crashed while it was predicting with {folder}. Serve another version, or export the "
                "model again."
            )
        cost = self._trials.run(folder, content, limits.trust)
        model = open_version(folder, trusted=limits.trust)
        if model.manifest != content:
            raise ModelError(f"{folder} was replaced while it was being opened. It will be opened again.")
        # The first call allocates memory; no request should have to wait for that.
        model.predict(np.zeros((1, *model.manifest.input.shape[1:]), content.input.dtype))
        measured = self.measured(model.manifest.name)
        limit = self._watchdog.limit
        predict: Callable[[np.ndarray], Outputs] = limit(version, model.predict)
        predict_maps: Callable[[np.ndarray], Outputs] = limit(version, model.predict_maps)
        see: Callable[[np.ndarray, bool], Seen] = limit(version, model.see)
        if crashes:
            predict, see = crashes.attribute(version, predict), crashes.attribute(version, see)
            predict_maps = crashes.attribute(version, predict_maps)
        batcher = Batcher(
            predict, limits.batch, limits.queue, self.executor, measured, limits.threads, unit=content.unit, cost=cost
        )
        maps = Batcher(predict_maps, limits.batch, limits.queue, self.executor) if content.maps else None
        return InProcessVersion(model, batcher, see, maps)


def complete(outputs: Outputs, content: Manifest) -> dict[str, Any]:
    """Returns all outputs that a manifest names: classes and their labels follow from probabilities."""
    if content.predicted == VALUE:
        return {name: outputs[name] for name in content.outputs}
    classes = np.argmax(outputs[PROBABILITIES], axis=-1)
    found = {CLASS_ID: classes, LABEL: [content.labels[index] for index in classes], **outputs}
    return {name: found[name] for name in content.outputs}


def count_values(outputs: Outputs) -> int:
    """Counts the values that a response has to write."""
    return sum(value.size if isinstance(value, np.ndarray) else len(value) for value in outputs.values())

"""The model versions that answer: found in a repository, loaded, replaced, and taken away."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from serving import memory, release, repository
from serving.errors import ModelError, UnavailableError, UnknownModelError
from serving.release import Release

State = Literal["loading", "available", "failed"]
T = TypeVar("T")
# In place of the time of a change: what failed is not the folder's fault, and is tried at every look.
AGAIN = -1
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """A version, and whether it answers."""

    version: int
    state: State
    why: str = ""
    """What is wrong with one that failed."""


@dataclass
class Entry(Generic[T]):
    """One model."""

    release: Release = field(default_factory=Release)
    served: dict[int, T] = field(default_factory=dict)
    failed: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By version: a digest of when its files were last changed, and what is wrong with it."""
    loading: int | None = None

    def statuses(self) -> list[Status]:
        """Of all versions that are known, the newest first."""
        found = [Status(version, "available") for version in self.served]
        found += [Status(version, "failed", why) for version, (_, why) in self.failed.items()]
        if self.loading is not None:
            found.append(Status(self.loading, "loading"))
        return sorted(found, key=lambda status: -status.version)


class Catalog(Generic[T]):
    """What a repository serves at the moment; looked at again and again in a thread of its own.

    A version that cannot be loaded is reported and left out, and the one before it goes on. What is taken away stays
    usable for those that have it already: nobody who asked is left without an answer.

    Args:
        root: the repository, `<name>/<version>/`.
        open_version: from a version's folder to what serves it; raises `ModelError`, and what raised an
            `UnavailableError` is tried again at the next look.

    Example:
        catalog = Catalog(Path("models"), open_model)
        catalog.refresh()
        catalog.find("demo").predict(images)
    """

    def __init__(self, root: Path, open_version: Callable[[Path], T]) -> None:
        self.root = root
        self._open = open_version
        # Replaced as a whole or entry by entry, never while somebody looks through it.
        self._entries: dict[str, Entry[T]] = {}
        self._stop = threading.Event()
        self._refreshing = threading.Lock()

    def find(self, name: str, version: int | None = None, label: str | None = None) -> T:
        """What serves a model.

        Args:
            name: of the model.
            version: its number; None is the newest that is served.
            label: in place of the version.

        Raises:
            UnknownModelError: there is none of that name, version or label.
            UnavailableError: there may be one a little later.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownModelError(f"there is no model {name!r}. Served are: {', '.join(self.names()) or 'none'}.")
        if label is not None:
            if label not in entry.release.labels:
                known = ", ".join(entry.release.labels) or "none"
                raise UnknownModelError(f"model {name!r} has no label {label!r}. It has: {known}.")
            version = entry.release.labels[label]
        served = entry.served
        if version is None and served:
            return served[max(served)]
        if version not in served:
            for number, (changed, why) in entry.failed.items():
                if changed == AGAIN and version in (None, number):
                    raise UnavailableError(why)
            known = ", ".join(map(str, sorted(served))) or "none"
            asked = "no version" if version is None else f"no version {version}"
            raise UnknownModelError(f"of model {name!r} {asked} is served. Served are: {known}.")
        return served[version]

    def names(self) -> list[str]:
        """Models of which a version is served."""
        return sorted(name for name, entry in self._entries.items() if entry.served)

    def entries(self) -> Mapping[str, Entry[T]]:
        """All models, those without a version that could be loaded too."""
        return dict(self._entries)

    def refresh(self) -> None:
        """Looks at the repository once, and loads and removes versions until it serves what it should."""
        with self._refreshing:
            before = self._numbers()
            self._refresh_all()
            if self._numbers() != before:
                # But for what requests that are under way still have; that goes back with the next change.
                memory.give_back()

    def _numbers(self) -> set[tuple[str, int]]:
        return {(name, version) for name, entry in self._entries.items() for version in entry.served}

    def _refresh_all(self) -> None:
        found = {folder.name: folder for folder in repository.models(self.root)}
        for name in self._entries.keys() - found.keys():
            log.info("model removed", extra={"model": name})
            del self._entries[name]
        for name, folder in sorted(found.items()):
            self._refresh(self._entries.setdefault(name, Entry()), folder)

    def watch(self, seconds: float) -> threading.Thread:
        """Refreshes every so many seconds in a thread, until `close`."""

        def run() -> None:
            while not self._stop.wait(seconds):
                try:
                    self.refresh()
                except Exception:
                    # The next look may succeed; until then what is served goes on.
                    log.exception("the repository could not be looked through", extra={"root": str(self.root)})

        thread = threading.Thread(target=run, name="catalog", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends the watching."""
        self._stop.set()

    def _refresh(self, entry: Entry[T], folder: Path) -> None:
        try:
            wanted = release.read(folder)
        except ModelError as error:
            log.error("release refused", extra={"model": folder.name, "why": str(error)})
            wanted = entry.release
        on_disk = repository.versions(folder)
        if wanted.versions is None:
            kept = self._newest(entry, folder, on_disk)
        else:
            kept = {version for version in wanted.versions if self._loaded(entry, folder, version, on_disk)}
            # Until one of those that are wanted can be loaded the others go on.
            kept = kept or set(entry.served)
        # Only now, when the new ones answer, may the old ones go.
        entry.release = wanted
        entry.served = {version: served for version, served in entry.served.items() if version in kept}
        absent = dict.fromkeys(set(wanted.versions or ()) - set(on_disk), (0, "it is not in the repository"))
        entry.failed = {version: why for version, why in entry.failed.items() if version in on_disk} | absent

    def _newest(self, entry: Entry[T], folder: Path, on_disk: list[int]) -> set[int]:
        for version in reversed(on_disk):
            if self._loaded(entry, folder, version, on_disk):
                return {version}
        return set()

    def _loaded(self, entry: Entry[T], folder: Path, version: int, on_disk: list[int]) -> bool:
        """Whether a version is served, after an attempt to load it if it has not failed already as it is."""
        if version in entry.served:
            return version in on_disk
        path = folder / str(version)
        if version not in on_disk:
            return False
        try:
            # Of every file: one that is still being copied changes, and its folder does not.
            changed = hash(
                tuple((found.st_mtime_ns, found.st_size) for found in map(Path.stat, sorted(path.rglob("*"))))
            )
        except OSError:
            return False
        if version in entry.failed and entry.failed[version][0] == changed:
            return False
        entry.loading = version
        try:
            served = self._open(path)
        except ModelError as error:
            failed = (AGAIN if isinstance(error, UnavailableError) else changed, str(error))
            # What is tried at every look is not told at every look.
            if entry.failed.get(version) != failed:
                log.error("version refused", extra={"model": folder.name, "version": version, "why": str(error)})
            entry.failed = {**entry.failed, version: failed}
            return False
        finally:
            entry.loading = None
        log.info("version loaded", extra={"model": folder.name, "version": version})
        entry.failed = {number: why for number, why in entry.failed.items() if number != version}
        entry.served = {**entry.served, version: served}
        return True

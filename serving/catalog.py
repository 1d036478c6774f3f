"""The model versions that answer: found in a repository, loaded, replaced, and taken away.

Whatever goes wrong with a version stays with that version: it is refused, with the reason, and everything else goes its
way. What is loaded is served on while its folder cannot be read; see `Catalog` for when it goes.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from serving import memory, release, repository
from serving.entry import Entry, Refusal, not_served, told
from serving.errors import ModelError, ServingError, UnavailableError, UnknownModelError
from serving.manifest import NAME

T = TypeVar("T")
# Seconds that a model answers on after its last version was removed: folders are moved about and come back.
PATIENCE = 10.0
# Seconds between two attempts at a version that failed for a reason which may not lie in its files, at most; the first
# comes after one second, each of the others after twice as long.
LONGEST = 60.0
log = logging.getLogger(__name__)


class Catalog(Generic[T]):
    """What a repository serves at the moment; looked at again and again in a thread of its own.

    A version that cannot be opened is reported and left out, and the one before it goes on. What is taken away stays
    usable for those that have it already: nobody who asked is left without an answer.

    Versions and models that are removed go at the next look if another version of the model takes their place, and
    otherwise after `PATIENCE`. While the repository or a model's folder cannot be read at all, or is another folder
    than before and empty, as where a volume was, nothing goes.

    Args:
        root: the repository, `<name>/<version>/`.
        open_version: from a version's folder to what serves it. What it raises is told as the reason; it is called
            again when the files change, after an `UnavailableError` at every look, and after what is no `ModelError`
            from time to time.
        patience: seconds, in place of `PATIENCE`.

    Example:
        catalog = Catalog(Path("models"), open_model)
        catalog.refresh()
        catalog.find("demo").predict(images)
    """

    def __init__(self, root: Path, open_version: Callable[[Path], T], patience: float = PATIENCE) -> None:
        self.root = root
        self.wrong = ""
        """What is wrong with the repository, while what is loaded is served on."""
        self._open = open_version
        self._patience = patience
        # Replaced as a whole or entry by entry, never while somebody looks through it.
        self._entries: dict[str, Entry[T]] = {}
        self._home: tuple[int, int] | None = None
        self._looked = threading.Event()
        self._stop = threading.Event()
        self._refreshing = threading.Lock()

    @property
    def loading(self) -> bool:
        """Whether the first look is not over, so that models may still come which are there already."""
        return not self._looked.is_set()

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
        try:
            return self._find(name, version, label)
        except UnknownModelError:
            if self.loading:
                raise UnavailableError("the models are still being loaded. Try again a little later.") from None
            raise

    def _find(self, name: str, version: int | None, label: str | None) -> T:
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
            for number, refusal in entry.failed.items():
                if refusal.later and version in (None, number):
                    raise UnavailableError(refusal.why)
            raise UnknownModelError(not_served(name, version, entry))
        return served[version]

    def names(self) -> list[str]:
        """Models of which a version is served."""
        return sorted(name for name, entry in self._entries.items() if entry.served)

    def entries(self) -> Mapping[str, Entry[T]]:
        """All models, those without a version that could be loaded too."""
        return dict(self._entries)

    def refresh(self) -> None:
        """Looks at the repository once, and loads and removes versions until it serves what it should.

        It raises nothing, and returns early once the catalog is closed.
        """
        while not self._refreshing.acquire(timeout=0.1):
            # Another look may take its time over a version.
            if self._stop.is_set():
                return
        try:
            before = self._numbers()
            self._refresh_all()
            if not self._stop.is_set():
                self._looked.set()
            if self._numbers() != before:
                # But for what requests that are under way still have; that goes back with the next change.
                memory.give_back()
        finally:
            self._refreshing.release()

    def watch(self, seconds: float, first: Callable[[], object] = lambda: None) -> threading.Thread:
        """Looks at once, and then every so many seconds, in a thread, until `close`.

        Args:
            seconds: between two looks.
            first: is called after the first one.
        """

        def run() -> None:
            self.refresh()
            first()
            while not self._stop.wait(seconds):
                self.refresh()

        thread = threading.Thread(target=run, name="catalog", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends the watching."""
        self._stop.set()

    def _numbers(self) -> set[tuple[str, int, int]]:
        return {
            (name, version, id(one)) for name, entry in self._entries.items() for version, one in entry.served.items()
        }

    def _refresh_all(self) -> None:
        try:
            found = {folder.name: folder for folder in repository.folders(self.root)}
        except OSError as error:
            self._lost(f"the repository {self.root} cannot be read: {error.strerror or error}")
            return
        home = repository.identity(self.root)
        if not found and self._entries and home != self._home:
            self._lost(f"the repository {self.root} is another folder than it was, and empty")
            return
        if self.wrong:
            log.info("repository back", extra={"root": str(self.root)})
            self.wrong = ""
        self._home = home
        for name in sorted(self._entries.keys() | found.keys()):
            if self._stop.is_set():
                return
            self._refresh_one(name, self.root / name, there=name in found)

    def _lost(self, why: str) -> None:
        why = f"{why}. What is loaded is served on."
        if why != self.wrong:
            log.error("repository lost", extra={"why": why})
        self.wrong = why

    def _refresh_one(self, name: str, folder: Path, there: bool) -> None:
        entry = self._entries.get(name) or Entry()
        wrong = ""
        try:
            on_disk = repository.versions(folder) if there else []
            if on_disk:
                entry.home = repository.identity(folder)
                # Known from now on: while its first version is loaded too.
                self._entries[name] = entry
                wrong = self._refresh(entry, folder, on_disk)
            elif name in self._entries:
                wrong = self._emptied(entry, folder)
        except Exception as error:
            # Of the folder itself: what is wrong with a version is noted as that.
            self._entries[name] = entry
            wrong = f"{folder} cannot be read: {told(error)}. What is loaded of it is served on."
        if wrong != entry.wrong and wrong:
            log.error("model not as it should be", extra={"model": name, "why": wrong})
        entry.wrong = wrong
        if name in self._entries and not (entry.served or entry.failed or wrong):
            log.info("model removed", extra={"model": name})
            del self._entries[name]

    def _emptied(self, entry: Entry[T], folder: Path) -> str:
        """What becomes of a model that has no versions any more."""
        entry.failed = {}
        if repository.identity(folder) not in (None, entry.home):
            return f"{folder} is another folder than it was, and has no versions. What is loaded is served on."
        return self._waited(entry, f"{folder} has no versions any more")

    def _waited(self, entry: Entry[T], why: str) -> str:
        """Takes away what is served if nothing has taken its place for long enough; until then says so."""
        if not entry.served:
            return ""
        now = monotonic()
        entry.gone = now if entry.gone is None else entry.gone
        if now - entry.gone >= self._patience:
            self._keep(entry, set())
            return ""
        return f"{why}. What is loaded goes {self._patience:g} s after that."

    def _refresh(self, entry: Entry[T], folder: Path, on_disk: list[int]) -> str:
        """Brings a model that has versions up to date, and gives what is wrong with its folder."""
        wrong = ""
        try:
            wanted = release.read(folder)
        except ModelError as error:
            wanted, wrong = entry.release, f"{error} What was released before stays; at first that is the newest."
        if wanted.versions is None:
            kept = self._newest(entry, folder, on_disk)
        else:
            kept = {version for version in wanted.versions if self._loaded(entry, folder, version, on_disk)}
            # Until one of those that are wanted can be loaded the others go on.
            kept = kept or set(entry.served)
        # Only now, when the new ones answer, may the old ones go.
        entry.release = wanted
        if self._stop.is_set():
            return wrong
        if kept:
            self._keep(entry, kept)
        else:
            wrong = wrong or self._waited(entry, f"{folder} has no version any more that can be served")
        absent = {
            version: Refusal("it is not in the repository") for version in set(wanted.versions or ()) - set(on_disk)
        }
        entry.failed = {version: refusal for version, refusal in entry.failed.items() if version in on_disk} | absent
        return wrong

    @staticmethod
    def _keep(entry: Entry[T], kept: set[int]) -> None:
        entry.served = {version: served for version, served in entry.served.items() if version in kept}
        entry.marks = {version: mark for version, mark in entry.marks.items() if version in kept}
        entry.gone = None

    def _newest(self, entry: Entry[T], folder: Path, on_disk: list[int]) -> set[int]:
        for version in reversed(on_disk):
            if self._loaded(entry, folder, version, on_disk):
                return {version}
        return set()

    def _loaded(self, entry: Entry[T], folder: Path, version: int, on_disk: list[int]) -> bool:
        """Whether a version is served, after an attempt to open it if need be."""
        path = folder / str(version)
        if version not in on_disk or self._stop.is_set():
            return False
        served = version in entry.served
        manifest = _mark_of_manifest(path)
        # A version never changes. One that was removed and exported again has another manifest.
        if served and entry.marks[version] == manifest:
            entry.failed = _without(entry.failed, version)
            return True
        mark, before = _mark_of_files(path), entry.failed.get(version)
        if before and before.mark == mark and monotonic() < before.again:
            return served
        entry.loading = version
        try:
            opened = self._open(path)
        except Exception as error:
            if self._stop.is_set():
                # What it is opened with is being closed.
                return served
            self._refuse(entry, folder.name, version, mark, error)
            return served
        finally:
            entry.loading = None
        log.info("version loaded", extra={"model": folder.name, "version": version})
        entry.failed = _without(entry.failed, version)
        entry.marks = {**entry.marks, version: manifest}
        entry.served = {**entry.served, version: opened}
        return True

    def _refuse(self, entry: Entry[T], name: str, version: int, mark: object, error: Exception) -> None:
        why, before = told(error), entry.failed.get(version)
        later = isinstance(error, UnavailableError)
        pause = float("inf")
        if later:
            pause = 0.0
        elif not isinstance(error, ModelError) or isinstance(error.__cause__, (OSError, MemoryError)):
            # Of the disk, of memory, or a mistake of this program: the files may be right.
            pause = min(2 * before.pause or 1.0, LONGEST) if before and before.mark == mark else 1.0
        # What is tried again is not told again.
        if before is None or before.why != why:
            log.error(
                "version refused",
                extra={"model": name, "version": version, "why": why},
                exc_info=None if isinstance(error, ServingError) else error,
            )
        entry.failed = {**entry.failed, version: Refusal(why, mark, monotonic() + pause, pause, later)}


def _without(failed: dict[int, Refusal], version: int) -> dict[int, Refusal]:
    return {number: refusal for number, refusal in failed.items() if number != version}


def _mark_of_manifest(folder: Path) -> object:
    """When the manifest of a version was written; what file systems over a network make up anew is left out."""
    found = _stat(folder / NAME)
    return (found.st_size, found.st_mtime_ns) if isinstance(found, os.stat_result) else found


def _mark_of_files(folder: Path) -> object:
    """When any file was changed, or its rights were: one that is being copied changes, and its folder does not."""
    try:
        paths = [folder, *sorted(folder.rglob("*"))]
    except OSError as error:
        return error.errno
    found = [_stat(path) for path in paths]
    return hash(
        tuple(
            (one.st_size, one.st_mtime_ns, one.st_ctime_ns) if isinstance(one, os.stat_result) else one for one in found
        )
    )


def _stat(path: Path) -> os.stat_result | int | None:
    try:
        return path.stat()
    except OSError as error:
        return error.errno

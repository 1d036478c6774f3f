"""The served model versions: found in a repository, loaded, replaced, and dropped.

A failure affects only the version it belongs to: that version is refused, with the reason. Loaded versions stay in
service while their folder cannot be read; `Catalog` says when they are dropped.
"""

import errno
import logging
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from serving import memory, release, repository
from serving.bucket import Report
from serving.engine.mirror import Mirror
from serving.engine.status import (
    ModelState,
    Refusal,
    VersionStatus,
    error_reason,
    not_served,
    not_served_message,
    readable,
)
from serving.errors import LoadingError, ModelError, RefusedError, ServingError, UnavailableError, UnknownModelError

T = TypeVar("T")
# Seconds that a model stays in service after its last version was removed: folders are moved away and come back.
PATIENCE = 10.0
# Seconds after the first check in which a model that is still being tried counts as one that is being loaded.
TRIED = 10.0
log = logging.getLogger(__name__)


class Catalog(Generic[T]):
    """The versions of a repository that are in service, kept up to date by a thread.

    A version that cannot be opened is reported and skipped, and the one before it stays in service. A version that is
    dropped stays usable for requests that already hold it.

    Removed versions and models are dropped at the next check if another version of the model replaces them, otherwise
    after `PATIENCE`. Nothing is dropped while the repository or a model's folder cannot be read at all, or has become a
    different, empty folder, as happens when a volume is unmounted.

    Args:
        root: the repository, `<name>/<version>/`.
        open_version: opens a version's folder. Its exceptions become the reason of a refusal; it is called again when
            the files change, after an `UnavailableError` at every check, and after anything but a `ModelError` from
            time to time. A `LoadingError` is no refusal: it is called again at the next check.
        patience: seconds, instead of `PATIENCE`.
        mirror: copies a bucket to the repository; runs while the catalog polls.

    Example:
        catalog = Catalog(Path("models"), open_model)
        catalog.refresh()
        catalog.find("demo").predict(images)
    """

    def __init__(
        self,
        root: Path,
        open_version: Callable[[Path], T],
        patience: float = PATIENCE,
        mirror: Mirror | None = None,
    ) -> None:
        self.root = root
        self.problem = ""
        """Problem with the repository, while loaded versions stay in service."""
        self._open, self._patience = open_version, patience
        self._in_root = re.compile(rf"(?<![\w./-]){re.escape(readable(str(root)))}/")
        self._mirror = mirror
        # Changed by the thread that checks the repository; other threads iterate over copies.
        self._models: dict[str, ModelState[T]] = {}
        self._folder_id: tuple[int, int] | None = None
        # Paths of folders that cannot be models, as they were logged.
        self._misnamed: set[str] = set()
        self._checked = threading.Event()
        self._first_check: float | None = None
        self._stop = threading.Event()
        self._refreshing = threading.Lock()

    @property
    def loading(self) -> bool:
        """True if the first check is still running, or has only just ended, so that models on disk may be missing."""
        return not self._checked.is_set()

    def find(self, name: str, version: int | None = None, label: str | None = None) -> T:
        """Returns a served version of a model.

        Args:
            name: name of the model.
            version: its number; None is the newest in service.
            label: label of a version, instead of its number.

        Raises:
            UnknownModelError: there is none of that name, version or label.
            RefusedError: there is one, but it was refused.
            UnavailableError: there may be one shortly.
        """
        try:
            return self._find(name, version, label)
        except (RefusedError, UnknownModelError):
            if self.loading:
                raise self._still_loading() from None
            raise

    def statuses(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Returns the status of every known version of a model, or of one, newest first.

        Args:
            name: name of the model.
            version: number of the only version to return.

        Raises:
            UnknownModelError: there is no such model or version.
            UnavailableError: there may be one shortly.
        """
        if name not in self._models and self.loading:
            raise self._still_loading()
        state = self._state(name)
        found = [one for one in state.statuses(self.problem) if version in (None, one.version)]
        if version is not None and not found:
            raise UnknownModelError(not_served_message(name, version, state))
        return found

    def _find(self, name: str, version: int | None, label: str | None) -> T:
        state = self._state(name)
        if label is not None:
            # Another thread may replace the release.
            labels = state.release.labels
            if label not in labels:
                known = ", ".join(labels) or "none"
                raise UnknownModelError(f"model {name!r} has no label {label!r}. It has: {known}.")
            version = labels[label]
        served = state.served
        if version is None and served:
            return served[max(served)]
        if version not in served:
            raise not_served(name, version, state)
        return served[version]

    def _state(self, name: str) -> ModelState[T]:
        if (state := self._models.get(name)) is None:
            raise UnknownModelError(f"there is no model {name!r}. Served are: {', '.join(self.names()) or 'none'}.")
        return state

    @staticmethod
    def _still_loading() -> UnavailableError:
        return UnavailableError("the models are still being loaded. Try again a little later.")

    def names(self) -> list[str]:
        """Returns the models with a version in service."""
        return sorted(name for name, state in self.models().items() if state.served)

    def models(self) -> Mapping[str, ModelState[T]]:
        """Returns the state of all models, including those of which no version could be loaded."""
        return dict(self._models)

    def refresh(self) -> None:
        """Checks the repository once: loads new versions and drops old ones.

        Raises nothing, and returns early once the catalog is closed.
        """
        while not self._refreshing.acquire(timeout=0.1):
            # Another check may take long to open a version.
            if self._stop.is_set():
                return
        try:
            before, report = self._numbers(), self._mirror.report() if self._mirror else Report()
            self._refresh_all(report)
            if report.complete and not self._stop.is_set():
                self._end_loading()
            if self._numbers() != before:
                # Memory that requests in flight still hold is returned at the next change.
                memory.give_back()
        finally:
            self._refreshing.release()

    def start_polling(self, seconds: float, after: Callable[[], object] = lambda: None) -> threading.Thread:
        """Checks the repository at once and then periodically, in a thread, until `close`.

        Args:
            seconds: seconds between two checks.
            after: called after each check.
        """

        def run() -> None:
            self.refresh()
            after()
            while not self._stop.wait(seconds):
                self.refresh()
                after()

        if self._mirror:
            self._mirror.start()
        thread = threading.Thread(target=run, name="catalog", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Stops the checks."""
        self._stop.set()
        if self._mirror:
            self._mirror.close()

    def _end_loading(self) -> None:
        self._first_check = self._first_check or monotonic()
        tried = any(state.loading and not state.served for state in self._models.values())
        if not tried or monotonic() - self._first_check >= TRIED:
            self._checked.set()

    def _numbers(self) -> set[tuple[str, int, int]]:
        return {
            (name, version, id(one)) for name, state in self._models.items() for version, one in state.served.items()
        }

    def _refresh_all(self, report: Report) -> None:
        try:
            folders = repository.folders(self.root)
        except OSError as error:
            self._report_unavailable(f"the repository cannot be read: {error.strerror or error}")
            return
        found = {folder.name: folder for folder in folders if repository.is_model_name(folder.name)}
        self._report_misnamed({readable(str(folder)) for folder in folders if folder.name not in found})
        folder_id = repository.identity(self.root)
        if not found and self._models and folder_id != self._folder_id:
            self._report_unavailable("the repository has been replaced by an empty folder")
            return
        if report.problem:
            self._report_unavailable(report.problem)
        elif self.problem:
            log.info("repository available again", extra={"root": str(self.root)})
            self.problem = ""
        self._folder_id = folder_id
        for name in sorted(self._models.keys() | found.keys() | report.refused.keys()):
            if self._stop.is_set():
                return
            self._refresh_model(name, self.root / name, name in found, report.refused.get(name, {}))

    def _report_unavailable(self, problem: str) -> None:
        why = f"{problem}. Loaded versions stay in service."
        if (problem := self._for_clients(why)) != self.problem:
            log.error("repository unavailable", extra={"root": str(self.root), "why": why})
        self.problem = problem

    def _for_clients(self, message: str) -> str:
        """Returns a message with paths relative to the repository; only operators need to know where that is."""
        return self._in_root.sub("", message)

    def _report_misnamed(self, paths: set[str]) -> None:
        for path in sorted(paths - self._misnamed):
            why = "its name is not UTF-8, as names in URLs and JSON must be. Rename it."
            log.error("model folder ignored", extra={"folder": path, "why": why})
        self._misnamed = paths

    def _refresh_model(self, name: str, folder: Path, there: bool, uncopied: Mapping[int, str]) -> None:
        state = self._models.get(name) or ModelState()
        problem = ""
        try:
            if repository.leads_nowhere(folder):
                # Its target may be back soon, unlike a folder that was removed.
                raise FileNotFoundError(errno.ENOENT, "the link leads nowhere")
            on_disk, too_large = repository.listed(folder) if there else ([], {})
            uncopied = {one: self._for_clients(why) for one, why in {**uncopied, **too_large}.items()}
            if on_disk or uncopied:
                # Listed from now on, even while its first version is being loaded.
                self._models[name] = state
            for version, reason in state.set_uncopied(uncopied).items():
                log.error("version refused", extra={"model": name, "version": version, "why": reason})
            if on_disk:
                state.folder_id = repository.identity(folder)
                problem = self._refresh_versions(state, folder, on_disk)
            elif name in self._models:
                problem = self._handle_empty(state, folder)
        except Exception as error:
            # The folder itself failed: failures of versions are recorded with the versions.
            self._models[name] = state
            problem = f"{folder} cannot be read: {error_reason(error)}. Loaded versions stay in service."
        if self._stop.is_set():
            return
        why, problem = problem, self._for_clients(problem)
        if problem != state.problem and problem:
            log.error("model folder has a problem", extra={"model": name, "why": why})
        state.problem = problem
        if name in self._models and not (state.served or state.failed or state.loading or problem):
            log.info("model removed", extra={"model": name})
            del self._models[name]

    def _handle_empty(self, state: ModelState[T], folder: Path) -> str:
        """Handles a model without versions, and returns the problem."""
        state.failures, state.loading = {}, frozenset()
        # A folder that never had versions has replaced nothing.
        if state.folder_id and repository.identity(folder) not in (None, state.folder_id):
            return f"{folder} has been replaced by a folder without versions. Loaded versions stay in service."
        return self._drop_later(state, f"{folder} no longer has versions")

    def _drop_later(self, state: ModelState[T], problem: str) -> str:
        """Drops all versions once nothing has replaced them for long enough; returns the problem until then."""
        if not state.served:
            return ""
        now = monotonic()
        state.missing_since = now if state.missing_since is None else state.missing_since
        if now - state.missing_since >= self._patience:
            state.keep(set())
            return ""
        return f"{problem}. Loaded versions are dropped {self._patience:g} s after that."

    def _refresh_versions(self, state: ModelState[T], folder: Path, on_disk: list[int]) -> str:
        """Updates a model that has versions, and returns the problem with its folder."""
        problem = ""
        try:
            wanted = release.read(folder)
        except ModelError as error:
            wanted, problem = state.release, f"{error} The previous release stays; at first that is the newest version."
        kept = self._load_wanted(state, folder, on_disk, wanted.versions)
        if wanted.versions is not None:
            # Until a wanted version can be loaded, the others stay.
            kept = kept or set(state.served) & set(on_disk)
        # Old versions are dropped only now that the new ones answer.
        state.release = wanted
        if self._stop.is_set():
            return problem
        if kept:
            state.keep(kept)
        elif not state.loading:
            problem = problem or self._drop_later(state, f"{folder} no longer has a version that can be served")
        absent = {
            version: Refusal("it is not in the repository") for version in set(wanted.versions or ()) - set(on_disk)
        }
        state.failures = {one: refusal for one, refusal in state.failures.items() if one in on_disk} | absent
        return problem

    def _load_wanted(
        self, state: ModelState[T], folder: Path, on_disk: list[int], pinned: tuple[int, ...] | None
    ) -> set[int]:
        """Opens the pinned versions or, without any, the newest that can be opened; returns those in service."""
        asked: set[int] = set()
        kept: set[int] = set()
        for version in reversed(on_disk) if pinned is None else pinned:
            if kept and pinned is None:
                break
            asked.add(version)
            if self._load(state, folder, version, on_disk):
                kept.add(version)
        # Whether another version can be loaded is of no interest any more.
        state.loading &= asked & set(on_disk)
        return kept

    def _load(self, state: ModelState[T], folder: Path, version: int, on_disk: list[int]) -> bool:
        """Opens a version if necessary, and returns whether it is in service."""
        path = folder / str(version)
        if version not in on_disk or self._stop.is_set():
            return False
        served = version in state.served
        manifest = repository.manifest_stamp(path)
        # A version never changes; one that was removed and exported again has another manifest.
        if served and state.stamps[version] == manifest:
            state.clear_failure(version)
            return True
        stamp, before = repository.files_stamp(path), state.failures.get(version)
        if before and before.stamp == stamp and monotonic() < before.retry_at:
            return served
        state.loading |= {version}
        try:
            if repository.leads_nowhere(path):
                raise ModelError(
                    f"{path} is a link that leads nowhere. Mount the volume that it leads to, or correct the link."
                )
            opened = self._open(path)
        except LoadingError:
            return served
        except Exception as error:
            # Otherwise the backend is being closed.
            if not self._stop.is_set():
                self._refuse(state, folder.name, version, stamp, error)
            state.loading -= {version}
            return served
        log.info("version loaded", extra={"model": folder.name, "version": version})
        state.serve(version, opened, manifest)
        state.loading -= {version}
        return True

    def _refuse(self, state: ModelState[T], name: str, version: int, stamp: object, error: Exception) -> None:
        why, before = error_reason(error), state.failures.get(version)
        reason = self._for_clients(why)
        # A retry with the same outcome is not logged again.
        if before is None or before.reason != reason:
            log.error(
                "version refused",
                extra={"model": name, "version": version, "why": why},
                exc_info=None if isinstance(error, ServingError) else error,
            )
        refusal = Refusal.of(error, reason, stamp, before, monotonic())
        state.failures = {**state.failures, version: refusal}

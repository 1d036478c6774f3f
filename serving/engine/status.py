"""State of one model: the versions that answer, the versions that were refused, and why."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from serving.errors import (
    ModelError,
    RefusedError,
    ServingError,
    TrialTimeoutError,
    UnavailableError,
    UnknownModelError,
)
from serving.release import Release

T = TypeVar("T")
# Shortest and longest pause, in seconds, between attempts to open a version whose files may not be to blame; each is
# twice as long as the one before.
RETRY = 1.0, 60.0
# The same after a trial that took too long: each takes a core for a minute.
RETRY_LONG = 60.0, 3600.0
# Maximum number of characters; some reasons quote damaged files.
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class VersionStatus:
    """A version and whether it answers."""

    version: int
    state: Literal["loading", "available", "failed"]
    reason: str = ""
    """Why it failed, or the problem with the files of a version that still answers."""


@dataclass(frozen=True)
class Refusal:
    """Reason why a version is not served as it is on disk."""

    reason: str
    stamp: object = None
    """Identifies the state of its files at the attempt; a change triggers a new attempt."""
    retry_at: float = float("inf")
    """Time of the next attempt with unchanged files, by `monotonic`."""
    pause: float = 0.0
    """Seconds from the attempt until then."""
    temporary: bool = False
    """True if clients should ask again a little later."""

    @classmethod
    def of(cls, error: Exception, reason: str, stamp: object, before: "Refusal | None", now: float) -> "Refusal":
        """Returns the refusal of a version that could not be opened.

        Args:
            error: the error.
            reason: its reason.
            stamp: state of the files at the attempt.
            before: the previous refusal of the version.
            now: time at the end of the attempt, by `monotonic`.
        """
        if isinstance(error, UnavailableError):
            return cls(reason, stamp, now, temporary=True)
        if isinstance(error, ModelError) and not isinstance(error.__cause__, (OSError, MemoryError)):
            return cls(reason, stamp)
        # The disk, the memory, a busy machine or a bug may be to blame, and the files may be fine.
        first, longest = RETRY_LONG if isinstance(error, TrialTimeoutError) else RETRY
        pause = min(2 * before.pause or first, longest) if before and before.stamp == stamp else first
        pause = max(pause, first)
        return cls(reason, stamp, now + pause, pause)


@dataclass
class ModelState(Generic[T]):
    """Everything the catalog knows about one model."""

    release: Release = field(default_factory=Release)
    served: dict[int, T] = field(default_factory=dict)
    failures: dict[int, Refusal] = field(default_factory=dict)
    """Versions in the repository that could not be opened."""
    uncopied: dict[int, Refusal] = field(default_factory=dict)
    """Versions that are refused without being opened: their numbers are too large, or their copies from the bucket are
    missing or outdated."""
    loading: frozenset[int] = frozenset()
    """Versions that are being opened, or tried in the background."""
    problem: str = ""
    """Problem with the model's folder or its release, while loaded versions stay in service."""
    stamps: dict[int, object] = field(default_factory=dict)
    """Stamps of the manifests of the served versions."""
    folder_id: tuple[int, int] | None = None
    """Identity of the folder that held the versions."""
    missing_since: float | None = None
    """Time, by `monotonic`, at which the served versions were first found removed without a replacement."""

    @property
    def failed(self) -> dict[int, Refusal]:
        """Versions that are not served as they are."""
        return self.failures | self.uncopied

    def serve(self, version: int, opened: T, stamp: object) -> None:
        """Puts a version into service.

        Args:
            version: its number.
            opened: the opened version.
            stamp: stamp of its manifest.
        """
        self.clear_failure(version)
        self.stamps = {**self.stamps, version: stamp}
        self.served = {**self.served, version: opened}

    def keep(self, versions: Set[int]) -> None:
        """Drops all other versions from service."""
        self.served = {version: served for version, served in self.served.items() if version in versions}
        self.stamps = {version: stamp for version, stamp in self.stamps.items() if version in versions}
        self.missing_since = None

    def clear_failure(self, version: int) -> None:
        """Forgets that a version could not be opened."""
        self.failures = {number: refusal for number, refusal in self.failures.items() if number != version}

    def set_uncopied(self, reasons: Mapping[int, str]) -> dict[int, str]:
        """Sets the versions that were not copied, with the reasons; returns those with a new reason."""
        before, self.uncopied = self.uncopied, {one: Refusal(_shortened(why)) for one, why in reasons.items()}
        return {one: refusal.reason for one, refusal in self.uncopied.items() if before.get(one) != refusal}

    def statuses(self, problem: str = "") -> list[VersionStatus]:
        """Returns the status of every known version, newest first.

        Args:
            problem: problem with the whole repository.
        """
        # In this order: another thread puts a version into one of the others before it ends loading.
        loading, served, failed = self.loading, self.served, self.failed
        problem = self.problem or problem
        found = [VersionStatus(one, "available", failed[one].reason if one in failed else problem) for one in served]
        found += [VersionStatus(one, "failed", refusal.reason) for one, refusal in failed.items() if one not in served]
        found += [VersionStatus(one, "loading") for one in loading - served.keys() - failed.keys()]
        return sorted(found, key=lambda status: -status.version)


def not_served_message(name: str, version: int | None, state: ModelState[T]) -> str:
    """Explains why a model or one of its versions does not answer.

    Args:
        name: name of the model.
        version: the requested version; None is any.
        state: state of the model.
    """
    known = ", ".join(map(str, sorted(state.served))) or "none"
    requested = "" if version is None else f"version {version} of "
    reasons = [
        f"Version {one} was refused: {refusal.reason}"
        for one, refusal in sorted(state.failed.items(), reverse=True)
        if version in (None, one)
    ]
    if version is None and state.problem:
        reasons.append(state.problem)
    return " ".join([f"{requested}model {name!r} is not served. Served versions: {known}.", *reasons])


def not_served(name: str, version: int | None, state: ModelState[T]) -> ServingError:
    """Returns the error for a model or version that does not answer; see `not_served_message`."""
    loading, failed = state.loading, state.failed
    refused = [refusal for number, refusal in failed.items() if version in (None, number)]
    for refusal in refused:
        if refusal.temporary:
            return UnavailableError(refusal.reason)
    if any(version in (None, one) for one in loading - failed.keys()):
        requested = "" if version is None else f"version {version} of "
        return UnavailableError(f"{requested}model {name!r} is still being loaded. Try again a little later.")
    wrong = refused or (version is None and state.problem)
    return (RefusedError if wrong else UnknownModelError)(not_served_message(name, version, state))


def readable(text: str) -> str:
    """Returns a text with everything escaped that is not UTF-8, as in the names of files and in damaged files."""
    return text.encode(errors="backslashreplace").decode()


def error_reason(error: Exception) -> str:
    """Returns an error as one line; errors from other packages are prefixed with their type."""
    reason = str(error) if isinstance(error, ServingError) else f"{type(error).__name__}: {error}"
    return _shortened(readable(reason))


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."

"""What is known of a model: the versions that answer, those that were refused, and why."""

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from serving.errors import ServingError
from serving.release import Release

State = Literal["loading", "available", "failed"]
T = TypeVar("T")
# Characters of a reason: some are made of what stands in damaged files.
SAID = 1000


@dataclass(frozen=True)
class Status:
    """A version, and whether it answers."""

    version: int
    state: State
    why: str = ""
    """What is wrong with one that failed, or with the files of one that answers all the same."""


@dataclass(frozen=True)
class Refusal:
    """A version that is not served as it lies on disk."""

    why: str
    mark: object = None
    """Of its files when it was tried; it is tried again when they change."""
    again: float = float("inf")
    """Time, by `monotonic`, at which it is tried again though they did not."""
    pause: float = 0.0
    """Seconds from the attempt until then."""
    later: bool = False
    """Whether whoever asks for it should ask again a little later."""


@dataclass
class Entry(Generic[T]):
    """One model."""

    release: Release = field(default_factory=Release)
    served: dict[int, T] = field(default_factory=dict)
    failed: dict[int, Refusal] = field(default_factory=dict)
    loading: int | None = None
    wrong: str = ""
    """What is wrong with the model's folder or its release, while what is loaded is served on."""
    marks: dict[int, object] = field(default_factory=dict)
    """Of the manifests of those that are served."""
    home: tuple[int, int] | None = None
    """Which folder the versions were seen in."""
    gone: float | None = None
    """Since when, by `monotonic`, nothing takes the place of what is served."""

    def statuses(self, wrong: str = "") -> list[Status]:
        """Of all versions that are known, the newest first.

        Args:
            wrong: what is wrong with the whole repository.
        """
        served, failed, loading = self.served, self.failed, self.loading
        wrong = self.wrong or wrong
        found = [Status(one, "available", failed[one].why if one in failed else wrong) for one in served]
        found += [Status(one, "failed", refusal.why) for one, refusal in failed.items() if one not in served]
        if loading is not None and loading not in served and loading not in failed:
            found.append(Status(loading, "loading"))
        return sorted(found, key=lambda status: -status.version)


def not_served(name: str, version: int | None, entry: Entry[T]) -> str:
    """Why a model, or a version of it, does not answer.

    Args:
        name: of the model.
        version: that was asked for; None is any.
        entry: what is known of it.
    """
    known = ", ".join(map(str, sorted(entry.served))) or "none"
    asked = "no version" if version is None else f"no version {version}"
    refused = (
        f" Version {one} was refused: {refusal.why}" for one, refusal in sorted(entry.failed.items(), reverse=True)
    )
    reasons = "".join(refused) if version is None else ""
    return f"of model {name!r} {asked} is served. Served are: {known}.{reasons}"


def told(error: Exception) -> str:
    """What went wrong, in a line; errors that are not this program's own are told with their kind."""
    said = str(error) if isinstance(error, ServingError) else f"{type(error).__name__}: {error}"
    # Of names and contents that are no text.
    said = said.encode(errors="backslashreplace").decode()
    return said if len(said) <= SAID else f"{said[:SAID]}..."

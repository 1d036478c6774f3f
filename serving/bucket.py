"""A model repository in a bucket, and the folder that it is copied to, which is served like any other repository.

A version is downloaded into a hidden folder, checked against its manifest (`serving.stored_version`), and renamed, so
the copy holds complete versions only: of each model those that its release names or, if it names none, the `KEPT`
newest, so that a new endpoint does not download a whole history.

fsspec, which finds a package for each kind of URL, is imported where it is used: only URLs need it.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from serving import checks, files, manifest, release, repository, signature, stores
from serving.errors import ModelError, ServingError, UnavailableError
from serving.stored_version import Prefix, description, download, models, versions

# Versions of a model that are copied if its release names none: the newest, and one to fall back on.
KEPT = 2
# Files of the copy: the report of the last check, the lock during a check, and the prefix of downloads.
REPORT, _BUSY, _ASIDE = ".report.json", ".busy", ".incoming-"
# Objects of a version, by path below it, as fsspec lists them.
Objects = Mapping[str, Mapping[str, Any]]


class BucketError(ServingError):
    """A URL cannot be served: its package, its bucket or access to it is missing, or it names no repository."""


class Report(BaseModel):
    """Result of a check of a bucket."""

    complete: bool = True
    """True once a check has ended; until then, versions may be missing in the copy."""
    problem: str = ""
    """Why the bucket could not be read; the copy is as it was."""
    refused: dict[str, dict[int, str]] = {}
    """Versions that were not copied and why, by model and number."""
    seen: dict[str, str] = {}
    """Digest of the listing of each version and release at the last check, by path."""


def is_url(text: str) -> bool:
    """Returns whether a repository is named by a URL, such as `s3://bucket/models`, and not by a path."""
    return "://" in text


def copy_folder(url: str) -> Path:
    """Creates the folder that a repository is copied to; every start of an endpoint uses the same one.

    Args:
        url: its URL.

    Returns:
        A folder in the user's folder for caches, `XDG_CACHE_HOME` or `~/.cache`. It holds the copies of an earlier
        endpoint, and its report is incomplete until the first check.

    Raises:
        BucketError: the folder cannot be made.
    """
    # Two servers may have buckets of the same name.
    store = stores.of(url)
    address = os.environ.get(store.address, "") if store else ""
    digest = hashlib.sha256(f"{url} {address}".encode()).hexdigest()
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "highway-keras" / "buckets" / digest[:16]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_report(folder, read_report(folder).model_copy(update={"complete": False, "problem": ""}))
    except (OSError, RuntimeError) as error:
        raise BucketError(
            f"{url} cannot be copied to this machine: {error}. Name a folder that can be written to, and has room for "
            "the models, in the environment variable XDG_CACHE_HOME."
        ) from error
    return folder


def read_report(folder: Path) -> Report:
    """Returns the report of the last check; an incomplete one if there was none."""
    try:
        return Report.model_validate_json((folder / REPORT).read_bytes())
    except (OSError, ValidationError):
        return Report(complete=False)


def write_report(folder: Path, report: Report) -> None:
    """Writes a report for all processes that serve the copy."""
    _write(folder / REPORT, report.model_dump_json().encode())


def check(url: str) -> str:
    """Checks that a URL names a repository, which may still be empty, or out of reach for a while.

    Returns:
        A problem that may pass, such as missing models; empty if there is none.

    Raises:
        BucketError: it cannot be served, now or later.
    """
    try:
        _, objects = _listing(url)
    except UnavailableError as error:
        return f"{error}."
    if manifest.NAME in objects:
        raise BucketError(f"{url} is one version of a model. Name the folder of all models, two levels up.")
    if versions(objects):
        raise BucketError(f"{url} is one model. Name the folder of all models, one level up.")
    return "" if models(objects) else f"{url} has no models yet: no MODEL/VERSION/{manifest.NAME}."


def synchronize(url: str, folder: Path, before: Report) -> Report:
    """Checks a bucket once, with one listing, and copies new versions.

    Args:
        url: URL of the repository.
        folder: its copy.
        before: report of the previous check; objects that have not changed since are not read again.

    Returns:
        The new report.

    Example:
        with tempfile.TemporaryDirectory() as folder:
            report = synchronize("memory://models", Path(folder), Report())
    """
    with locked(folder / _BUSY):
        for left in folder.glob(f"{_ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            system, objects = _listing(url)
        except ServingError as error:
            return before.model_copy(update={"complete": True, "problem": str(error).rstrip(".")})
        found, copied = models(objects), {model.name for model in repository.models(folder)}
        if copied and not found:
            # As for a folder, loaded versions stay: to serve nothing, the operator stops the endpoint.
            problem = f"{url} no longer has models"
            return before.model_copy(update={"complete": True, "problem": problem})
        after = Report()
        for name in sorted(found.keys() | copied):
            try:
                _Copy(system, url, folder, before, after).follow(name, found.get(name, {}))
            except Exception as error:
                after.problem = f"{url}/{name} cannot be copied ({type(error).__name__}: {error})"
                after.refused[name] = before.refused.get(name, {})
        return after


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks a file until the block ends, waiting if necessary; the system releases it if the process is killed."""
    # Not on Windows, which has no workers either.
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class _Copy:
    """One check of a bucket: its URL, the folder of the copy, and the reports of the previous check and of this one."""

    system: Any
    url: str
    folder: Path
    before: Report
    after: Report

    def follow(self, name: str, objects: Objects) -> None:
        """Updates the copy of a model to its objects in the bucket."""
        model, there = self.folder / name, versions(objects)
        described = {path: entry for path, entry in objects.items() if path == release.NAME}
        key, stamp = f"{name}/{release.NAME}", _stamp(described)
        content = self._release(name, stamp, described)
        pinned, readable = _pinned(content)
        copied: set[int] = set()
        for number in sorted(there if pinned is None else pinned, reverse=True):
            if pinned is None and len(copied) == KEPT:
                break
            if number in there:
                self._follow_version(name, number, there[number])
            else:
                self._refuse(name, number, f"{self.url}/{name}/{number} does not exist, and {release.NAME} names it")
            if (model / str(number)).is_dir():
                copied.add(number)
        # Only now, because the versions that it names must be there.
        if content is None:
            (model / release.NAME).unlink(missing_ok=True)
        elif model.is_dir() and content != _content(model / release.NAME):
            _write(model / release.NAME, content)
        self.after.seen[key] = stamp
        for number, why in repository.too_large(path.partition("/")[0] for path in objects).items():
            self._refuse(name, number, why)
        for number in repository.versions(model):
            # Until a wanted version is there, those before it stay.
            if number not in there or (readable and copied and number not in copied):
                self._remove(model / str(number))
        if model.is_dir() and not repository.versions(model):
            shutil.rmtree(model)

    def _follow_version(self, name: str, number: int, objects: Objects) -> None:
        key, target = f"{name}/{number}", self.folder / name / str(number)
        stamp, reason = _stamp(objects), self.before.refused.get(name, {}).get(number, "")
        if self.before.seen.get(key) != stamp or not (reason or target.is_dir()):
            try:
                reason = self._download(key, target, objects)
            except Exception as error:
                # The connection or the disk may be to blame: the next check tries again.
                reason, stamp = f"{self.url}/{key} cannot be copied: {type(error).__name__}: {error}", ""
        self.after.seen[key] = stamp
        if reason:
            self._refuse(name, number, reason)

    def _refuse(self, name: str, number: int, reason: str) -> None:
        # The reason may quote a damaged file, which can contain anything.
        self.after.refused.setdefault(name, {})[number] = reason.encode(errors="backslashreplace").decode()

    def _download(self, key: str, target: Path, objects: Objects) -> str:
        """Copies a version that has not been copied; returns the reason if it is refused."""
        version = self._prefix(key, objects)
        described = description(version)
        if _is_copy(target, described):
            return ""
        with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=self.folder) as aside:
            folder = Path(aside) / key
            folder.mkdir(parents=True)
            try:
                download(version, described, folder, checks.place)
            except ModelError as error:
                return str(error)
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                target.rename(Path(aside) / "old")
            folder.rename(target)
        return ""

    def _release(self, name: str, stamp: str, objects: Objects) -> bytes | None:
        """Returns the content of the release of a model, if it has one."""
        if not objects:
            return None
        key = f"{name}/{release.NAME}"
        content = _content(self.folder / key) if self.before.seen.get(key) == stamp else None
        return self._prefix(name, objects).read(release.NAME, release.LARGEST) if content is None else content

    def _prefix(self, key: str, objects: Objects) -> Prefix:
        return Prefix(
            f"{self.url}/{key}",
            {name: entry["size"] for name, entry in objects.items()},
            lambda name, start, end: self.system.cat_file(objects[name]["name"], start=start, end=end),
        )

    def _remove(self, version: Path) -> None:
        # A rename, so that readers of the folder see the version disappear at once.
        with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=self.folder) as aside:
            version.rename(Path(aside) / "old")


def _listing(url: str) -> tuple[Any, Objects]:
    """Returns the file system of a URL, and its objects by path below it.

    Raises:
        BucketError: it cannot be read, now or later.
        UnavailableError: it cannot be read at the moment.
    """
    stores.silence_logs()
    try:
        import fsspec

        # Listings are not cached: each check makes its own.
        system, root = fsspec.url_to_fs(url, use_listings_cache=False)
        listed = system.find(root, detail=True)
    except Exception as error:
        raise _explained(url, error) from None
    return system, {name[len(root) :].removeprefix("/"): entry for name, entry in listed.items()}


def _explained(url: str, error: Exception) -> ServingError:
    if isinstance(error, ImportError):
        known = stores.of(url)
        package = f'`pip install "highway-keras[{known.extra}]"`' if known else f"its package: {error}"
        return BucketError(f"{url} needs a package that is not installed. Install {package}.")
    kind = type(error).__name__
    if isinstance(error, (FileNotFoundError, ValueError)) or kind == "ParamValidationError":
        why = "its bucket has no valid name" if kind == "ParamValidationError" else str(error).rstrip(".")
        return BucketError(f"{url} cannot be found: {why}. Check the URL.")
    if stores.denies_access(error):
        return BucketError(
            f"{url} cannot be read: {str(error).rstrip('.')}. Give credentials as the bucket's own tools take them: "
            "in environment variables, in their files, or by the role of the machine."
        )
    return UnavailableError(f"{url} cannot be reached ({kind}: {error})")


def _pinned(content: bytes | None) -> tuple[Collection[int] | None, bool]:
    """Returns the versions that a release names, None if it leaves that open, and whether it can be read."""
    if content is None:
        return None, True
    try:
        return release.Release.model_validate_json(content).versions, True
    except ValidationError:
        # The catalog reports it.
        return None, False


def _stamp(objects: Objects) -> str:
    """Returns a digest of the listing of some objects: sizes, times, and tags of their content."""
    listed = [(name, sorted(objects[name].items())) for name in sorted(objects)]
    return hashlib.sha256(repr(listed).encode()).hexdigest()


def _is_copy(folder: Path, described: Mapping[str, bytes]) -> bool:
    """Returns whether a folder holds the version that its manifest and its signature describe, undamaged."""
    if any(described.get(name) != _content(folder / name) for name in (manifest.NAME, signature.NAME)):
        return False
    try:
        files.verify(folder, manifest.read(folder))
    except ModelError:
        return False
    return True


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _write(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        with suppress(OSError):
            aside.unlink()

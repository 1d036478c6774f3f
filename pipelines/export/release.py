"""Chooses and labels the versions of a model that endpoints and TF Serving load, in a folder or a bucket."""

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.url import Location, Url, is_url, read_all
from serving import release as releases
from serving import repository, stored_version, stores
from serving.errors import ServingError, first_fault
from serving.manifest import LARGEST_VERSION
from serving.release import Release
from serving.tf_serving import configuration


class Change(NamedTuple):
    """The outcome of `release`."""

    served: Release
    """The versions and labels."""
    ended: list[int]
    """Versions that were served before and no longer are."""
    removed: dict[str, int]
    """Labels that no longer exist, with their versions."""
    missing: list[int]
    """Versions of the release that do not exist."""
    unwritten: str | None
    """Why the configuration of TF Serving could not be written; None if it is up to date."""


def release(
    model: Location,
    versions: Sequence[int] = (),
    labels: Mapping[str, int | None] | None = None,
    *,
    newest: bool = False,
) -> Change:
    """Sets the versions of a model that are served.

    Without any argument but the model, this reads the release as it is, and only brings the configuration of TF Serving
    up to date, if it can be written.

    Args:
        model: the folder of the model's versions, or its URL.
        versions: versions to serve; if empty, the labelled ones and the ones served so far.
        labels: versions by label, or None to remove a label; other labels stay if their versions are served.
        newest: whether to serve the newest version, without labels.

    Returns:
        The versions and labels served now, those that no longer are, and what is amiss.

    Raises:
        UserError: there is no such model or version, the arguments contradict each other, or the repository cannot be
            written to.

    Example:
        release(Path("models/digits"), [3, 4], {"stable": 3})
    """
    root, there = repository_of(model), versions_of(model)
    if not there:
        raise UserError(f"{model} is not a model: it has no versions. Make one with `highway export`.")
    asked = newest or bool(versions or labels)
    unwritten = None
    try:
        current = _read(model)
        wanted = _wanted(current, versions, labels, newest=newest)
        missing = sorted(set(wanted.versions or ()) - set(there))
        if asked and missing:
            raise UserError(
                f"{model} has no version {', '.join(map(str, missing))}. It has: {', '.join(map(str, there))}. Name "
                "all versions to be served with --versions."
            )
        if wanted != current:
            _write(model / releases.NAME, wanted.model_dump_json(indent=2) + "\n")
        try:
            _configure(root)
        except (OSError, ServingError, UserError) as error:
            if asked:
                raise
            unwritten = getattr(error, "strerror", None) or str(error)
    except ServingError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        if not isinstance(error, PermissionError) and error.errno != errno.EROFS:
            raise
        raise UserError(f"{root} cannot be written to: {error.strerror}. Change its permissions.") from error
    before, now = ({*(one.versions or there[-1:])} for one in (current, wanted))
    removed = {label: version for label, version in current.labels.items() if label not in wanted.labels}
    return Change(wanted, sorted(before - now), removed, missing, unwritten)


def repository_of(model: Location) -> Location:
    """Returns the repository of a model, which holds TF Serving's configuration.

    Raises:
        UserError: the model is a bucket as a whole.
    """
    if isinstance(model, Path):
        return model.resolve().parent
    if not is_url(str(model.parent)):
        raise UserError(
            f"{model} is a bucket. Name the folder of a model's versions in it, such as {model}/models/digits."
        )
    return model.parent


def versions_of(model: Location) -> list[int]:
    """Returns the versions of a model, ascending; in a bucket, those with a manifest."""
    return repository.versions(model) if isinstance(model, Path) else sorted(stored_version.versions(model.below()))


def _read(model: Location) -> Release:
    return releases.read(model) if isinstance(model, Path) else _read_all(model.parent, [model.name])[model.name]


def _read_all(root: Url, models: Iterable[str]) -> dict[str, Release]:
    """Returns the releases of models in a bucket, by their names."""
    names = [*models]
    paths = [root / name / releases.NAME for name in names]
    return {
        name: Release() if content is None else releases.parse(content, str(path))
        for name, path, content in zip(names, paths, read_all(paths), strict=True)
    }


def _configure(root: Location) -> None:
    """Writes the configuration of TF Serving, unless it is up to date."""
    path, text = root / configuration.NAME, _configuration(root)
    if isinstance(path, Path):
        written = path.read_bytes() if path.exists() else None
    else:
        (written,) = read_all([path])
    if written != text.encode():
        _write(path, text)


def _configuration(root: Location) -> str:
    if isinstance(root, Path):
        return configuration.text(releases.read_all(root))
    protocol, _, path = str(root).partition("://")
    store = stores.of(str(root))
    # TensorFlow knows each store by one name.
    base = f"{store.extra if store else protocol}://{path}"
    return configuration.text(_read_all(root, stored_version.models(root.below())), base)


def _write(path: Location, text: str) -> None:
    if isinstance(path, Path):
        write_text(path, text)
    else:
        path.write_bytes(text.encode())


def _wanted(
    current: Release, versions: Sequence[int], labels: Mapping[str, int | None] | None, *, newest: bool
) -> Release:
    if newest:
        if versions or labels:
            raise UserError("--newest serves one version without labels. Leave out --versions and --labels.")
        return Release()
    if not versions and not labels:
        return current
    given = labels or {}
    if unknown := sorted(label for label, version in given.items() if version is None and label not in current.labels):
        raise UserError(f"there is no label {', '.join(unknown)} to remove. There are: {', '.join(current.labels)}.")
    asked = {label: version for label, version in given.items() if version is not None}
    kept = {label: version for label, version in current.labels.items() if label not in given}
    served = versions or sorted({*asked.values(), *kept.values(), *(current.versions or ())})
    named = {label: version for label, version in kept.items() if version in served} | asked
    try:
        return Release(versions=tuple(sorted(set(served))), labels=named)
    except ValidationError as error:
        raise UserError(_fault(error)) from None


def _fault(error: ValidationError) -> str:
    where, fault = first_fault(error)
    if not where:
        return f"{fault}. Name all versions to be served with --versions."
    received = error.errors()[0]["input"]
    if isinstance(received, str):
        return (
            "a label has up to 64 letters, digits and characters of _.- and starts with a letter or _, such as stable. "
            f"Received: {received!r}."
        )
    return f"a version is a number from 1 to {LARGEST_VERSION:,}. Received: {received:,}."

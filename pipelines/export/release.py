"""Chooses and labels the versions of a model that endpoints and TF Serving load."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from serving import release as releases
from serving import repository
from serving.errors import ServingError
from serving.release import Release
from serving.tf_serving import configuration


def release(
    model: Path, versions: Sequence[int] = (), labels: Mapping[str, int | None] | None = None, *, newest: bool = False
) -> Release:
    """Sets the versions of a model that are served; without any argument but the model, nothing changes.

    Args:
        model: the folder of the model's versions.
        versions: versions to serve; if empty, the labelled ones and the ones served so far.
        labels: versions by label, or None to remove a label; other labels stay if their versions are served.
        newest: whether to serve the newest version, without labels.

    Returns:
        The versions and labels served now.

    Raises:
        UserError: there is no such model or version, the arguments contradict each other, or the repository cannot be
            written to.

    Example:
        release(Path("models/digits"), [3, 4], {"stable": 3})
    """
    on_disk = repository.versions(model)
    if not on_disk:
        raise UserError(f"{model} is not a model: it has no versions. Make one with `highway export`.")
    root = model.resolve().parent
    try:
        current = releases.read(model)
        wanted = _wanted(current, versions, labels, newest=newest)
        if missing := sorted(set(wanted.versions or ()) - set(on_disk)):
            raise UserError(
                f"{model} has no version {', '.join(map(str, missing))}. It has: {', '.join(map(str, on_disk))}."
            )
        if wanted != current:
            write_text(model / releases.NAME, wanted.model_dump_json(indent=2) + "\n")
        write_text(root / configuration.NAME, configuration.text(root))
    except ServingError as error:
        raise UserError(str(error)) from error
    except PermissionError as error:
        raise UserError(f"{root} cannot be written to: {error.strerror}.") from error
    return wanted


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
        raise UserError(f"{error.errors()[0]['msg']}. Name all versions to be served with --versions.") from None

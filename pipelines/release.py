"""`highway release`: which versions of a model are served, their labels, and the configuration of TF Serving."""

import sys
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field, ValidationError

from pipelines.arguments import parse
from pipelines.config import Frozen
from pipelines.errors import UserError
from pipelines.files import write_text
from serving import release, repository
from serving.errors import ServingError
from serving.tf_serving import configuration


class Arguments(Frozen):
    """Says which versions of a model are served, labels them, and writes that for TF Serving too.

    Endpoints take it up within a second, TF Serving at its next look at models.config. Without versions and labels it
    tells what is served.
    """

    model: tyro.conf.Positional[Path]
    """The folder of the model's versions."""
    versions: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Serve these and no others; to roll back, name the version before."""
    labels: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """LABEL=VERSION, such as stable=1: clients may ask for the label. May be given again; replaces all labels."""
    newest: bool = False
    """Serve the newest version, whichever that is, and drop the labels."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway release`.

    Raises:
        UserError: there is no such model or version, what was said contradicts itself, or the repository cannot be
            written to.
    """
    given = parse(Arguments, arguments, "highway release", Arguments.__doc__ or "")
    on_disk = repository.versions(given.model)
    if not on_disk:
        raise UserError(f"{given.model} is no model: it has no versions. Make one with `highway export`.")
    root = given.model.resolve().parent
    try:
        current = release.read(given.model)
        wanted = _wanted(given, current)
        if missing := sorted(set(wanted.versions or ()) - set(on_disk)):
            raise UserError(
                f"{given.model} has no version {', '.join(map(str, missing))}. It has: {', '.join(map(str, on_disk))}."
            )
        if wanted != current:
            write_text(given.model / release.NAME, wanted.model_dump_json(indent=2) + "\n")
        write_text(root / configuration.NAME, configuration.text(root))
    except ServingError as error:
        raise UserError(str(error)) from error
    except PermissionError as error:
        raise UserError(f"{root} cannot be written to: {error.strerror}.") from error
    sys.stdout.write(_report(given.model, wanted, on_disk) + f"TF Serving: {root / configuration.NAME}\n")


def _wanted(given: Arguments, current: release.Release) -> release.Release:
    if given.newest:
        if given.versions or given.labels:
            raise UserError("--newest serves one version without labels. Leave out --versions and --labels.")
        return release.Release()
    if not given.versions and not given.labels:
        return current
    labels = dict(_label(text) for text in given.labels) if given.labels else dict(current.labels)
    versions = given.versions or tuple(sorted({*labels.values(), *(current.versions or ())}))
    if not given.labels:
        labels = {label: version for label, version in labels.items() if version in versions}
    try:
        return release.Release(versions=tuple(sorted(set(versions))), labels=labels)
    except ValidationError as error:
        raise UserError(f"{error.errors()[0]['msg']}. Name all versions to be served with --versions.") from None


def _label(text: str) -> tuple[str, int]:
    label, _, version = text.partition("=")
    if not version.isdecimal():
        raise UserError(f"a label is LABEL=VERSION, such as stable=1. Received: {text!r}.")
    return label, int(version)


def _report(model: Path, served: release.Release, on_disk: list[int]) -> str:
    if served.versions is None:
        return f"{model}: the newest version is served, {on_disk[-1]} now\n"
    labels: dict[int, list[str]] = {version: [] for version in served.versions}
    for label, version in served.labels.items():
        labels[version].append(label)
    return "".join(f"{model}: version {version} {' '.join(names)}".rstrip() + "\n" for version, names in labels.items())

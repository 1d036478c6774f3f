"""`highway release`: selects and labels the versions of a model that the endpoint and TF Serving serve."""

import sys
from typing import Annotated

import tyro
from pydantic import Field

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.core.url import Location
from pipelines.export.release import Change, release, repository_of, versions_of
from serving.tf_serving import configuration


class Arguments(Frozen):
    """Selects the versions of a model to serve, labels them and updates the configuration of TF Serving.

    Endpoints follow within a second, or ten for a bucket, and TF Serving when it next reads models.config. Without
    options, prints the current release, and writes models.config only if it is out of date and can be written.
    """

    model: tyro.conf.Positional[Location]
    """Folder with the versions of the model, or its URL."""
    versions: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Serve exactly these; to roll back, name the previous version. Labels of other versions are removed."""
    labels: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """LABEL=VERSION, such as stable=1, for requests by label; LABEL= removes it. Can be repeated; other labels stay.
    Without --versions, the labelled versions are served, and those named before."""
    newest: bool = False
    """Always serve the newest version, and remove the labels."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway release`.

    Raises:
        UserError: see `release`.
    """
    given = parse(Arguments, arguments, "highway release", Arguments.__doc__ or "")
    change = release(given.model, given.versions, dict(map(_label, given.labels)), newest=given.newest)
    models_config = repository_of(given.model) / configuration.NAME
    lines = [f"version {version} is no longer served" for version in change.ended]
    lines += [f"label {label} of version {version} is removed" for label, version in change.removed.items()]
    no_longer = "".join(f"{given.model}: {line}\n" for line in lines)
    unwritten = f" cannot be written: {change.unwritten}" if change.unwritten else ""
    sys.stdout.write(no_longer + _report(given.model, change) + f"TF Serving: {models_config}{unwritten}\n")


def _label(text: str) -> tuple[str, int | None]:
    label, sign, version = text.partition("=")
    if sign and not version:
        return label, None
    if not version.isdecimal():
        raise UserError(f"a label is LABEL=VERSION, such as stable=1, or LABEL= to remove it. Received: {text!r}.")
    return label, int(version)


def _report(model: Location, change: Change) -> str:
    served = change.served
    if served.versions is None:
        return f"{model}: the newest version is served, {versions_of(model)[-1]} now\n"
    labels: dict[int, list[str]] = {version: [] for version in served.versions}
    for label, version in served.labels.items():
        labels[version].append(label)
    lines = {version: f"{model}: version {version} {' '.join(names)}".rstrip() for version, names in labels.items()}
    return "".join(f"{line}{', which is missing' * (version in change.missing)}\n" for version, line in lines.items())

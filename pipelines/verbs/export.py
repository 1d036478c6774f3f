"""`highway export`: exports a run as a version of a model, or verifies one."""

import sys
from pathlib import Path
from typing import Any

import tyro
from pydantic import Field, create_model
from rich.console import Console
from rich.markup import escape

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import Weights
from pipelines.core.sync import synced
from pipelines.core.url import Location
from pipelines.export.bucket import exported_to
from pipelines.export.export import export, verify
from pipelines.export.forms import optional
from pipelines.export.summary import agreement, report
from serving import manifest
from serving.manifest import ConversionKind


class FixedArguments(Frozen):
    """Writes the next version of a model: SavedModel, ONNX, labels and manifest, checked against the Keras model."""

    run: tyro.conf.Positional[Location]
    """The run directory to export, or its URL; with --verify, a version folder, or a model's folder for its newest
    version."""
    verify: bool = False
    """Verify an exported version instead: the SHA-256 of each file, and each form against the outputs of Keras."""
    to: Location | None = None
    """Folder of the model's versions, or its URL; default: models/ and the name of the run directory."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch with the highest validation accuracy."""
    gates: bool = True
    """Return the mean transform gate of each highway layer with each prediction, if the net has such layers."""
    calibrate: bool = False
    """Divide the logits by a temperature, fitted on the validation split, so that predictions made with a probability
    of 90% are right 90% of the time."""
    conversion: ConversionKind | None = Field(None, alias="pictures")
    """Preprocessing of image files: centre a digit as in MNIST; or crop (natural), pad or squash a photograph to the
    aspect ratio of the input. Default: chosen from the data set and the run's `image_fit`."""
    force: bool = False
    """Write the version even if its input or classes differ from those of the model's newest version."""
    sign: Path | None = None
    """Sign the version for `highway serve --trust` with this key: a PEM file with an Ed25519 private key, from `openssl
    genpkey -algorithm ed25519`; HIGHWAY_SIGNING_PASSPHRASE decrypts it. With --verify, sign an existing version."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


_OPTIONAL: dict[str, Any] = {form.key: (bool, Field(False, description=form.option)) for form in optional()}
Arguments = create_model("Arguments", __base__=FixedArguments, __doc__=FixedArguments.__doc__, **_OPTIONAL)
"""The arguments, with an option for each optional form."""
_WITH_VERIFY = ("run", "verify", "sign")


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway export`.

    Raises:
        UserError: see `export`.
    """
    given = parse(Arguments, arguments, "highway export", Arguments.__doc__ or "")
    _refuse_with_verify(given)
    console = Console(stderr=True)
    with synced(given.run) as run, exported_to(given.to) as to:
        if given.verify:
            with console.status(f"verifying {escape(str(given.run))}"):
                folder, parity = verify(run, given.sign)
            lines = [f"{folder}: all files are unchanged", *agreement(parity, manifest.read(folder))]
            sys.stdout.write("\n".join([*lines, "signed"] if given.sign else lines) + "\n")
            return
        with console.status(f"exporting {escape(str(given.run))}"):
            folder = export(
                run, to.folder, given.weights, given.data_dir, gates=given.gates,
                optional=[key for key in _OPTIONAL if getattr(given, key)], calibrate=given.calibrate,
                conversion=given.conversion, sign=given.sign, force=given.force,
            )  # fmt: skip
            to.publish()
        sys.stdout.write(report(folder))


def _refuse_with_verify(given: Any) -> None:
    """Refuses options next to --verify that it would ignore."""
    if not given.verify:
        return
    ignored = []
    for name, field in Arguments.model_fields.items():
        if name not in _WITH_VERIFY and getattr(given, name) != field.default:
            option = (field.alias or name).replace("_", "-")
            ignored.append(f"--no-{option}" if field.default is True else f"--{option}")
    if ignored:
        raise UserError(f"--verify checks a version as it is, without {', '.join(ignored)}. Omit these options.")

"""`highway predict`: classifies images with an exported model. TensorFlow is needed only for splits of data sets."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator

from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.inference.predict import TOP, predict, predict_remotely, table


class Arguments(Frozen):
    """Classifies images with an exported model; with --out, any number of them."""

    model: tyro.conf.Positional[Path]
    """A version folder, a model folder, whose newest version is used, or a net of the package, such as cifar10."""
    images: tyro.conf.Positional[Annotated[tuple[str, ...], Field(min_length=1)]]
    """Images of any size: PNG, JPEG, and more; folders, globs, tar files, tfds:mnist/test, and - for standard input."""
    format: Literal["table", "json"] = "table"
    """Print a table, or one line of JSON per image."""
    url: str | None = None
    """URL of an endpoint to use, with MODEL as the name of the model; HIGHWAY_API_KEY holds its key."""
    version: Annotated[int, Field(ge=1)] | None = None
    """With --url, number of the version; default: the newest in service."""
    label: str | None = None
    """With --url, label of the version, such as stable."""
    top: Annotated[int, Field(ge=1)] = TOP
    """Number of most probable classes per image."""
    out: Path | None = None
    """Parquet file to write instead, with one row per image. Repeat an interrupted command to resume it."""
    explain: bool = False
    """With --out, also write the mean gate of each layer; the model must have been exported with --gates."""
    data_dir: Path | None = None
    """With --out, folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.out is None and (self.explain or self.data_dir):
            raise ValueError(f"{'--explain' if self.explain else '--data-dir'} needs --out FILE.parquet")
        if self.out is not None and self.url is not None:
            raise ValueError("--out needs a model on this machine. Leave out --url or --out")
        if self.url is None and (self.version or self.label):
            raise ValueError("--version and --label need --url. Name the folder of the version as MODEL instead")
        if self.version and self.label:
            raise ValueError("a version is named by --version or --label. Leave one out")
        if self.out is not None and self.format != "table":
            raise ValueError("--format has no effect with --out. Leave it out")
        return self


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway predict`.

    Raises:
        UserError: see `predict`, and with --out `pipelines.inference.job.run`.
        SystemExit: some images could not be read (status 1).
    """
    given = parse(Arguments, arguments, "highway predict", Arguments.__doc__ or "")
    if given.out is not None:
        _write(given, given.out)
        return
    unreadable: list[str] = []
    # The version goes to standard error, because another program may read the results.
    if given.url is not None:
        files = [Path(image) for image in given.images]
        version, predictions = predict_remotely(
            given.url, str(given.model), files, given.top, version=given.version, label=given.label
        )
        sys.stderr.write(f"{version} answered\n")
    else:
        folder, predictions, unreadable = predict(given.model, given.images, given.top)
        if folder != given.model:
            sys.stderr.write(f"{folder} is the newest version of {given.model}\n")
    if given.format == "json":
        for prediction in predictions:
            top = [guess.model_dump() for guess in prediction.top]
            sys.stdout.write(json.dumps({"file": prediction.file, "top": top}, ensure_ascii=False) + "\n")
    else:
        from rich.console import Console

        Console().print(table(predictions))
    if unreadable:
        sys.stderr.write("".join(f"{line}\n" for line in unreadable))
        raise SystemExit(1)


def _write(given: Arguments, out: Path) -> None:
    from rich.console import Console

    from pipelines.inference.job import PredictionJob, run

    job = PredictionJob(given.model, given.images, out, given.top, given.explain, given.data_dir)
    result = run(job, Console(stderr=True))
    new = result.images - result.resumed
    if not new:
        sys.stdout.write(f"{out} is already complete, with {result.images:,} images. Remove it to start over.\n")
        return
    resumed = f" ({result.resumed:,} by earlier attempts)" if result.resumed else ""
    unreadable = f"; {result.unreadable:,} unreadable, see the column error" if result.unreadable else ""
    speed = f"{new / result.seconds:,.0f} images/s"
    sys.stdout.write(f"{out}: {result.images:,} images{resumed}{unreadable}; {speed}\n")

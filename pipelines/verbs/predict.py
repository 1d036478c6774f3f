"""`highway predict`: what an exported model sees in pictures. Only splits of data sets need TensorFlow."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator

from pipelines.core.config import Frozen
from pipelines.core.parsing import parse
from pipelines.inference.predict import TOP, predict, table


class Arguments(Frozen):
    """Classifies pictures with an exported model; with --out, any number of them."""

    model: tyro.conf.Positional[Path]
    """A version folder, or a model's folder, whose newest version is taken."""
    pictures: tyro.conf.Positional[Annotated[tuple[Path, ...], Field(min_length=1)]]
    """Files of any size: PNG, JPEG, what else Pillow reads. With --out also folders, globs, tars, tfds:mnist/test."""
    format: Literal["table", "json"] = "table"
    """Print a table, or one JSON object a line for each picture."""
    url: str | None = None
    """Ask the endpoint at this address, where MODEL is the model's name; a key is taken from HIGHWAY_API_KEY."""
    top: Annotated[int, Field(ge=1)] = TOP
    """How many classes to name for each picture, the most probable ones."""
    out: Path | None = None
    """Parquet file to write instead, a row a picture. Given again, the same command goes on where it was stopped."""
    explain: bool = False
    """With --out, also write how open the gates of each layer were; the model must have been exported with --gates."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets, for --out; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.out is None and (self.explain or self.data_dir):
            raise ValueError(f"{'--explain' if self.explain else '--data-dir'} is for --out FILE.parquet")
        if self.out is not None and self.url is not None:
            raise ValueError("--out is for models on this machine. Leave --url away, or --out")
        if self.out is not None and self.format != "table":
            raise ValueError("--format is for what is printed. Leave it away with --out")
        return self


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway predict`.

    Raises:
        UserError: see `predict`, and with --out `pipelines.inference.job.run`.
    """
    given = parse(Arguments, arguments, "highway predict", Arguments.__doc__ or "")
    if given.out is not None:
        _write(given, given.out)
        return
    # Which version it was is not among the results, which another program may be reading.
    if given.url is not None:
        from pipelines.inference import remote

        used, predictions = remote.predict(given.url, str(given.model), given.pictures, given.top)
        sys.stderr.write(f"{used} answered\n")
    else:
        folder, predictions = predict(given.model, given.pictures, given.top)
        if folder != given.model:
            sys.stderr.write(f"{folder} is the newest version of {given.model}\n")
    if given.format == "json":
        for prediction in predictions:
            top = [guess.model_dump() for guess in prediction.top]
            sys.stdout.write(json.dumps({"file": prediction.file, "top": top}, ensure_ascii=False) + "\n")
    else:
        from rich.console import Console

        Console().print(table(predictions))


def _write(given: Arguments, out: Path) -> None:
    from rich.console import Console

    from pipelines.inference.job import Job, run

    words = tuple(map(str, given.pictures))
    done = run(Job(given.model, words, out, given.top, given.explain, given.data_dir), Console(stderr=True))
    new = done.pictures - done.resumed
    if not new:
        sys.stdout.write(f"{out} is complete already, with {done.pictures:,} pictures. Remove it to begin again.\n")
        return
    resumed = f", {done.resumed:,} of them before" if done.resumed else ""
    bad = f"; {done.unreadable:,} could not be read, see the column error" if done.unreadable else ""
    speed = f"{new / done.seconds:,.0f} pictures a second"
    sys.stdout.write(f"{out}: {done.pictures:,} pictures{resumed}{bad}; {speed}\n")

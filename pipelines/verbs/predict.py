"""`highway predict`: predicts images or tables with an exported model. TensorFlow is needed for splits of data sets."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.core.sync import fetched
from pipelines.core.url import Location, Url, location
from pipelines.inference.image_ref import TFDS
from pipelines.inference.inputs import TARS
from pipelines.inference.predict import TOP, is_table, predict, predict_remotely, table
from serving.schemas import MOST_CLASSES

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.core.executor import Executor


class Arguments(Frozen):
    """Predicts images, or the rows of a table, with an exported model; with --out, any number of them."""

    model: tyro.conf.Positional[Location]
    """A version folder, a model folder, whose newest version is used, a URL of either, or a net of the package, such as
    cifar10."""
    images: tyro.conf.Positional[tuple[str, ...]]
    """Images of any size: PNG, JPEG, and more; folders, globs, tar files, tfds:mnist/test, and - for standard input. Or
    the rows of a table: a CSV, TSV or Parquet file. Files, folders, globs and tar files may be URLs, such as
    s3://bucket/photos."""
    format: Literal["table", "json"] = "table"
    """Print a table, or one line of JSON per image or row."""
    url: str | None = None
    """URL of an endpoint to use, with MODEL as the name of the model, and image files of this machine or a table;
    HIGHWAY_API_KEY holds its key."""
    version: Annotated[int, Field(ge=1)] | None = None
    """With --url, number of the version; default: the newest in service."""
    label: str | None = None
    """With --url, label of the version, such as stable."""
    top: Annotated[int, Field(ge=1)] = TOP
    """Number of most probable classes per image or row."""
    out: Location | None = None
    """Parquet file to write instead, with one row per image or row; or a new folder for many such files; or the URL of
    either. Repeat an interrupted command to resume it."""
    cluster: str | None = None
    """With --out, predict on the nodes of a Ray cluster: HOST:PORT of its head, or auto for that of this machine."""
    explain: bool = False
    """With --out, also write the mean gate of each layer; not for nets without highway layers, nor for models
    exported with --no-gates."""
    data_dir: Path | None = None
    """With --out and a split of a data set, folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then
    ~/tensorflow_datasets."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.images:
            raise ValueError(
                f"which images? {self.model} is the model, and nothing follows it. The command is highway predict "
                "MODEL IMAGES, with files, folders, globs or tar files, - for standard input, or one table"
            )
        needing = {"--explain": self.explain, "--data-dir": self.data_dir, "--cluster": self.cluster}
        if self.out is None and any(needing.values()):
            name = next(name for name, value in needing.items() if value)
            raise ValueError(f"{name} needs --out FILE.parquet, or --out with a new folder or the URL of either")
        if self.data_dir is not None and not any(word.startswith(TFDS) for word in self.images):
            raise ValueError(f"--data-dir is for splits of data sets, such as {TFDS}mnist/test. Leave it out")
        if self.out is not None and self.url is not None:
            raise ValueError("--out needs a model on this machine. Leave out --url or --out")
        if self.url is None and (self.version or self.label):
            raise ValueError("--version and --label need --url. Name the folder of the version as MODEL instead")
        if self.url is not None and self.top > MOST_CLASSES:
            raise ValueError(f"with --url, --top must be at most {MOST_CLASSES:,}. Received: {self.top}")
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
        UserError: see `predict` and `pipelines.inference.tables`, and with --out `pipelines.inference.job.run`.
        SystemExit: some images, or a source after others, could not be read (status 1).
    """
    given = parse(Arguments, arguments, "highway predict", Arguments.__doc__ or "")
    if is_table(given.images):
        _predict_table(given)
        return
    if given.out is not None:
        _write(given, given.out)
        return
    unreadable: list[str] = []
    # The version goes to standard error, because another program may read the results.
    if given.url is not None:
        files = _image_files(given.images)
        version, predictions = predict_remotely(
            given.url, str(given.model), files, given.top, version=given.version, label=given.label
        )
        sys.stderr.write(f"{version} answered\n")
    else:
        folder, predictions, unreadable = predict(given.model, given.images, given.top)
        _name_version(given.model, folder)
    if given.format == "json":
        for prediction in predictions:
            fields = {"file", "top", "labels", "digits", "notice"}
            found = prediction.model_dump(include=fields, exclude_none=True)
            sys.stdout.write(json.dumps({"file": prediction.file, **found}, ensure_ascii=False) + "\n")
    elif predictions:
        from rich.console import Console

        Console().print(table(predictions))
    # Of these, `top` means nothing.
    sys.stderr.write("".join(f"{one.file}: {one.notice}\n" for one in predictions if one.notice))
    if unreadable:
        sys.stderr.write("".join(f"{line}\n" for line in unreadable))
        raise SystemExit(1)


def _image_files(words: tuple[str, ...]) -> list[Path]:
    """Returns the image files that are sent to an endpoint, which takes no folders, archives or other sources."""
    for word in words:
        path = Path(word)
        if not path.exists() or path.is_dir() or word.lower().endswith(TARS):
            raise UserError(
                f"with --url, images are existing files of this machine. Received: {word}. Name the files, as the "
                "shell does for photos/*.jpg, or leave out --url and name a model of this machine."
            )
    return [Path(word) for word in words]


def _predict_table(given: Arguments) -> None:
    if given.out is not None:
        _write_table(given, given.out)
        return
    with fetched(location(given.images[0])) as path:
        _print_table(given, path)


def _print_table(given: Arguments, path: Path) -> None:
    from pipelines.inference import tables

    if given.url is not None:
        with tables.remote(given.url, str(given.model), given.version, given.label) as (version, model):
            found = tables.predict(model, path)
        sys.stderr.write(f"{given.model} version {version} answered\n")
    else:
        folder, model = tables.local(given.model)
        found = tables.predict(model, path)
        _name_version(given.model, folder)
    sys.stderr.write("".join(f"{line}\n" for line in found.rows.warnings))
    score = f"; {found.score()}" if found.score() else ""
    if given.format == "json":
        shown_fields = {"top", "labels"} if model.multi_label else {"top"} if model.labels else {"value"}
        for place, prediction in enumerate(found.predictions(given.top)):
            line = {"row": place + 1, **prediction.model_dump(include=shown_fields)}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    else:
        from pipelines.core.console import counted, table_console

        table_console().print(tables.table(found, given.top))
        shown = f", of which the first {tables.SHOWN} are shown" if len(found) > tables.SHOWN else ""
        sys.stdout.write(f"{counted(len(found), 'row')}{shown}{score}\n")


def _write_table(given: Arguments, out: Location) -> None:
    from rich.console import Console

    from pipelines.core.console import counted
    from pipelines.inference.job import PredictionJob
    from pipelines.inference.table_job import run

    console = Console(stderr=True)
    with fetched(location(given.images[0])) as path:
        job = PredictionJob(given.model, (str(path),), out, given.top, given.explain)
        folder, found, result = run(job, console, _executor(given.cluster, console))
    _name_version(given.model, folder)
    sys.stderr.write("".join(f"{line}\n" for line in found.rows.warnings))
    new = result.images - result.resumed
    if not result.seconds:
        sys.stdout.write(f"{out} is already complete, with {counted(result.images, 'row')}. Remove it to start over.\n")
        return
    resumed = f" ({result.resumed:,} by earlier attempts)" if result.resumed else ""
    score = f"; {found.score()}" if found.score() else ""
    speed = f"; {new / max(result.seconds, 1e-9):,.0f} rows/s" if new else ""
    sys.stdout.write(f"{out}: {counted(result.images, 'row')}{resumed}{score}{speed}\n")


def _write(given: Arguments, out: Location) -> None:
    from rich.console import Console

    from pipelines.core.console import counted
    from pipelines.inference.job import PredictionJob, run

    job = PredictionJob(given.model, given.images, out, given.top, given.explain, given.data_dir)
    console = Console(stderr=True)
    result = run(job, console, _executor(given.cluster, console), partial(_processes, console))
    new, count = result.images - result.resumed, counted(result.images, "image")
    unreadable = f"; {result.unreadable:,} unreadable, see the column error" if result.unreadable else ""
    if not result.seconds:
        sys.stdout.write(f"{out} is already complete, with {count}{unreadable}. Remove it to start over.\n")
        return
    resumed = f" ({result.resumed:,} by earlier attempts)" if result.resumed else ""
    speed = f"; {new / result.seconds:,.0f} images/s" if new else ""
    sys.stdout.write(f"{out}: {count}{resumed}{unreadable}{speed}\n")


def _name_version(model: Location, folder: Path) -> None:
    """Prints the version that was used, unless the user named it."""
    from pipelines.inference import stored_model

    # Of a URL, the folder is in a cache.
    version = stored_model.version_url(model, folder) if isinstance(model, Url) else folder
    if version != model:
        sys.stderr.write(f"{version} is the newest version of {model}\n")


def _executor(cluster: str | None, console: "Console") -> "Executor | None":
    if cluster is None:
        return None
    from pipelines.core.cluster_executor import ClusterExecutor
    from pipelines.core.console import say

    # ONNX Runtime compiles nothing that would stay in memory, and a new process takes as long as part of a task.
    return ClusterExecutor(cluster, partial(say, console), fresh=0)


def _processes(console: "Console", folder: Path) -> "Executor":
    from pipelines.core import environment
    from pipelines.core.console import say
    from pipelines.training.processes.local_executor import LocalExecutor

    return LocalExecutor(folder, environment.cores(), partial(say, console), trains=False)

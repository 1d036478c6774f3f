"""Prepares the user's own table of numbers as a TFDS data set of vectors in the user's cache."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from rich.console import Console

from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.data import sources
from pipelines.data.own import rows
from pipelines.data.own.item import Split
from pipelines.data.own.rows import TableData
from pipelines.data.own.storing import SOURCE, store
from pipelines.data.roots import data_name
from pipelines.data.sources import TableForm

# Part of the digest: another number if tables are stored differently.
FORMAT = 1
# Fields that apply to images only.
OF_IMAGES = ("image_size", "image_fit", "skip_damaged")


def read_table(config: Config) -> TableData:
    """Reads the user's own table of numbers.

    Args:
        config: path of the data, target, group, task, and number of rows held out.

    Raises:
        UserError: an option for images is given, or the table is refused; see `rows.read`.
    """
    if options := given(config, OF_IMAGES):
        raise UserError(f"{config.data} is a table of numbers, without images for {options}. Leave that out.")
    path = Path(config.data).expanduser()
    return rows.read(
        path, config.target, config.group, config.task, config.label_separator, validation=config.validation
    )


def given(config: Config, names: Iterable[str]) -> str:
    """Lists the options of those fields that have other values than by default; empty if none has."""
    fields = Config.model_fields
    return ", ".join("--" + name.replace("_", "-") for name in names if getattr(config, name) != fields[name].default)


def prepare_table(table: TableData, console: Console) -> Path:
    """Returns the prepared data set of a table, preparing it if necessary: unchanged data are prepared once.

    Args:
        table: the result of `read_table`.
        console: where to print progress.

    Returns:
        The folder of the data set.

    Raises:
        UserError: the disk is full, or the cache is not writable.
    """
    form = TableForm(target=table.target, columns=table.columns).model_dump_json(indent=2) + "\n"
    whole = hashlib.sha256(json.dumps([FORMAT, form, table.labels, list(table.splits)]).encode())
    whole.update(table.features.tobytes() + table.truth.tobytes())
    digest = whole.hexdigest()
    answer: dict[str, Any] = {"target": tfds.features.Tensor(shape=(1,), dtype=np.float32)}
    if table.labels:
        label = tfds.features.ClassLabel(names=list(table.labels))
        answer = {sources.LABELS: tfds.features.Sequence(label)} if table.multi_label else {"label": label}
    folder = store(
        table.source,
        data_name(Path(table.source)),
        digest,
        {"features": tfds.features.Tensor(shape=table.features.shape[1:], dtype=np.float32), **answer},
        lambda advance: {split: _examples(table, split, advance) for split in table.counts},
        total=len(table.splits),
        files={
            sources.COLUMNS: form,
            SOURCE: json.dumps({"source": table.source, "digest": digest}, indent=2) + "\n",
        },
        console=console,
    )
    counts = ", ".join(f"{table.counts[one]:,} {one}" for one in ("train", "validation", "test") if table.counts[one])
    say(console, f"{table.source}: {counts} rows, {len(table.columns)} columns; {table.task}")
    return folder


def with_table(config: Config, table: TableData, console: Console) -> Config:
    """Returns a configuration with the prepared form of a table, and prints the peculiarities of the table.

    Args:
        config: the configuration.
        table: the result of `read_table`.
        console: where to print progress and notes.

    Raises:
        UserError: the data cannot be prepared.
    """
    for name, why in table.left_out.items():
        say(console, f"left out: {name or 'a column'} {why}")
    for note in table.notes:
        say(console, f"note: {note}")
    return config.model_copy(update={"data": str(prepare_table(table, console))})


def _examples(table: TableData, split: Split, advance: Callable[[int], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a key and the example of each row of a split."""
    for number, (row, truth, its) in enumerate(zip(table.features, table.truth, table.splits, strict=True)):
        if its == split:
            yield f"{number:09}", {"features": row, **_answer(table, truth)}
            advance(1)


def _answer(table: TableData, truth: Any) -> dict[str, Any]:
    if table.multi_label:
        return {sources.LABELS: np.flatnonzero(truth).tolist()}
    return {"label": int(truth)} if table.labels else {"target": np.array([truth], np.float32)}

"""A Parquet file written in parts, so that a killed job resumes after the last complete part.

The parts are in a hidden folder next to the file. The file itself appears once it is complete.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from pipelines.core.files import file_lock, flush, replacing, write_text

# Rows per row group of the file; a reader holds at least one row group in memory.
GROUP = 32_768
JOB, LOCK, WHOLE = "job.json", "lock", "whole.parquet"
NAME = "path"

Description = Mapping[str, Any]
"""Everything that determines the content of a file."""


class Parts:
    """The parts of a file; see `open_parts`.

    Args:
        out: the file.
        folder: the folder of its parts.
        job: description of the job.
    """

    def __init__(self, out: Path, folder: Path, job: Description) -> None:
        self.out = out
        self.folder = folder
        self.job = job

    @property
    def is_complete(self) -> bool:
        """True if the file is complete."""
        return self.out.exists()

    @property
    def paths(self) -> list[Path]:
        """The complete parts, in order."""
        return sorted(self.folder.glob("[0-9]*.parquet"))

    @property
    def rows(self) -> int:
        """Number of rows in the parts."""
        return sum(pq.read_metadata(path).num_rows for path in self.paths)

    def skip(self, names: Iterator[str]) -> int:
        """Skips the images that already have a row.

        Args:
            names: names of all images, from the first one; one name is consumed per row.

        Returns:
            Number of skipped images.

        Raises:
            UserError: the names differ from those in the rows, or a part is damaged.
        """
        rows = 0
        for part in [self.out] if self.is_complete else self.paths:
            for written in _names(part):
                found = list(islice(names, len(written)))
                if found != written:
                    raise self._changed(rows, written, found)
                rows += len(written)
        if self.is_complete and next(names, None) is not None:
            raise UserError(
                f"{self.out} is complete with {rows:,} images, and there are more now. "
                "Name another file, or remove this one to start over."
            )
        return rows

    def write(self, table: pa.Table) -> None:
        """Writes the next part."""
        paths = self.paths
        number = int(paths[-1].stem) + 1 if paths else 0
        with replacing(self.folder / f"{number:08}.parquet") as aside:
            pq.write_table(table, aside, compression="zstd")

    def finish(self, schema: pa.Schema) -> None:
        """Joins the parts into the file and removes them."""
        whole = self.folder / WHOLE
        with replacing(whole) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
            rows = (batch for path in self.paths for batch in pq.ParquetFile(path).iter_batches())
            for group in _groups(rows):
                writer.write_table(pa.Table.from_batches(group, schema))
        whole.replace(self.out)
        flush(self.out.parent)
        shutil.rmtree(self.folder)

    def _changed(self, rows: int, written: list[str], found: list[str]) -> UserError:
        index = next((index for index, name in enumerate(found) if name != written[index]), len(found))
        now = f"is now {found[index]}" if index < len(found) else "is now missing"
        obsolete = self.out if self.is_complete else self.folder
        return UserError(
            f"the images have changed since {self.out} was begun: number {rows + index + 1:,} was {written[index]} "
            f"and {now}. Name another file, or remove {obsolete} to start over."
        )


@contextmanager
def open_parts(out: Path, job: Description) -> Iterator[Parts]:
    """Locks a file until the block ends or the process dies. Its parts are kept for another attempt.

    Args:
        out: the file.
        job: description of the job.

    Yields:
        The existing parts.

    Raises:
        UserError: another process holds the lock, or the file belongs to another job.

    Example:
        with open_parts(Path("predictions.parquet"), {"model": "demo"}) as parts:
            parts.write(table)
            parts.finish(table.schema)
    """
    folder = out.with_name(f".{out.name}.parts")
    parts = Parts(out, folder, job)
    refusal = f"another process is writing {out}. Wait for it, or name another file."
    with file_lock(folder / LOCK, refusal, create=True):
        try:
            _check(parts)
            try:
                write_text(folder / JOB, json.dumps(job, indent=2))
                yield parts
            finally:
                if parts.is_complete:
                    # An earlier process was killed between its last two steps.
                    shutil.rmtree(folder, ignore_errors=True)
        finally:
            if not parts.paths:
                shutil.rmtree(folder, ignore_errors=True)


def _check(parts: Parts) -> None:
    if parts.is_complete:
        if _written_by(parts.out) != parts.job:
            raise UserError(f"{parts.out} exists and belongs to another job. Name another file, or remove it.")
    elif parts.paths:
        stored = json.loads((parts.folder / JOB).read_text(encoding="utf-8"))
        name = next((name for name in parts.job if stored.get(name) != parts.job[name]), None)
        if name:
            raise UserError(
                f"{parts.out} was begun by another job: {name} was {_text(stored.get(name))} and is now "
                f"{_text(parts.job[name])}. Repeat that command to finish it, name another file, or remove "
                f"{parts.folder} to start over."
            )


def _written_by(path: Path) -> Any:
    """Returns the description of the job that wrote a file; None if it has none."""
    try:
        return json.loads(pq.read_schema(path).metadata[b"job"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(part: Path) -> Iterator[list[str]]:
    try:
        for batch in pq.ParquetFile(part).iter_batches(columns=[NAME]):
            yield batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{part} is damaged: {error}. Remove it and all later parts.") from None


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(len(one) for one in group) >= GROUP:
            yield group
            group = []
    if group:
        yield group

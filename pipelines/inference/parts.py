"""A Parquet file that grows by whole parts, so that a job that was killed goes on behind the last one.

The parts lie in a hidden folder beside the file, which appears when it is complete.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from pipelines.core.files import flush, replacing, write_text

# Of a group of rows in the file: what a reader has in memory at least.
GROUP = 32_768
JOB, LOCK, WHOLE = "job.json", "lock", "whole.parquet"
NAME = "path"

Job = Mapping[str, Any]


class Parts:
    """What is there of a file. Made by `held`.

    Args:
        out: the file.
        folder: of its parts.
        job: what decides the content of the file.
    """

    def __init__(self, out: Path, folder: Path, job: Job) -> None:
        self.out = out
        self.folder = folder
        self.job = job

    @property
    def is_complete(self) -> bool:
        """Whether the file is there, so that there is nothing left to do."""
        return self.out.exists()

    @property
    def paths(self) -> list[Path]:
        """The parts in their order; files that are still being written are not among them."""
        return sorted(self.folder.glob("[0-9]*.parquet"))

    @property
    def rows(self) -> int:
        """How many rows are in the parts."""
        return sum(pq.read_metadata(path).num_rows for path in self.paths)

    def skip(self, names: Iterator[str]) -> int:
        """Goes past the pictures that have a row already.

        Args:
            names: of the pictures from the first on, as they are written; as many are taken as there are rows.

        Returns:
            How many.

        Raises:
            UserError: they are others than those in the rows, or a part is damaged.
        """
        rows = 0
        for part in [self.out] if self.is_complete else self.paths:
            for kept in _names(part):
                found = list(islice(names, len(kept)))
                if found != kept:
                    raise self._changed(rows, kept, found)
                rows += len(kept)
        if self.is_complete and next(names, None) is not None:
            raise UserError(
                f"{self.out} is complete with {rows:,} pictures, and there are more of them now. "
                "Name another file, or remove this one to begin again."
            )
        return rows

    def write(self, table: pa.Table) -> None:
        """Writes the next part."""
        paths = self.paths
        number = int(paths[-1].stem) + 1 if paths else 0
        with replacing(self.folder / f"{number:08}.parquet") as aside:
            pq.write_table(table, aside, compression="zstd")

    def finish(self, schema: pa.Schema) -> None:
        """Puts the parts together, and removes them."""
        whole = self.folder / WHOLE
        with replacing(whole) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
            rows = (batch for path in self.paths for batch in pq.ParquetFile(path).iter_batches())
            for group in _groups(rows):
                writer.write_table(pa.Table.from_batches(group, schema))
        whole.replace(self.out)
        flush(self.out.parent)
        shutil.rmtree(self.folder)

    def _changed(self, rows: int, kept: list[str], found: list[str]) -> UserError:
        place = next((place for place, name in enumerate(found) if name != kept[place]), len(found))
        now = f"is {found[place]} now" if place < len(found) else "is there no more"
        again = self.out if self.is_complete else self.folder
        return UserError(
            f"the pictures have changed since {self.out} was begun: number {rows + place + 1:,} was {kept[place]}, "
            f"and {now}. Name another file, or remove {again} to begin again."
        )


@contextmanager
def held(out: Path, job: Job) -> Iterator[Parts]:
    """Holds a file for this process, until the block ends or the process dies. Parts stay, for another attempt.

    Args:
        out: the file.
        job: what decides its content.

    Yields:
        What is there of it.

    Raises:
        UserError: another process holds it, or it is of another job.

    Example:
        with held(Path("predictions.parquet"), {"model": "demo"}) as parts:
            parts.write(table)
            parts.finish(table.schema)
    """
    folder = out.with_name(f".{out.name}.parts")
    handle = _locked(folder, out)
    parts = Parts(out, folder, job)
    try:
        _check(parts)
        try:
            write_text(folder / JOB, json.dumps(job, indent=2))
            yield parts
        finally:
            if parts.is_complete:
                # Only if an earlier process was killed between its last two steps.
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        if not parts.paths:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked(folder: Path, out: Path) -> int:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise UserError(f"{out} cannot be written: {error.filename}: {error.strerror}.") from None
        # The process that finishes a file removes the folder, and may do so in this moment.
        with suppress(FileNotFoundError):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise UserError(f"another process is writing {out}. Wait for it, or name another file.") from None
            if os.fstat(handle).st_nlink:
                return handle
            os.close(handle)


def _check(parts: Parts) -> None:
    if parts.is_complete:
        if _written_by(parts.out) != parts.job:
            raise UserError(f"{parts.out} exists and is not of this job. Name another file, or remove it.")
    elif parts.paths:
        kept = json.loads((parts.folder / JOB).read_text(encoding="utf-8"))
        differing = [name for name in parts.job if kept.get(name) != parts.job[name]]
        if differing:
            name = differing[0]
            raise UserError(
                f"{parts.out} was begun by another job: {name} was {_shown(kept.get(name))}, and is "
                f"{_shown(parts.job[name])} now. Repeat that command to finish it, name another file, or remove "
                f"{parts.folder} to begin again."
            )


def _written_by(path: Path) -> Any:
    """The job that wrote a file; None if it was none of ours."""
    try:
        return json.loads(pq.read_schema(path).metadata[b"job"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(part: Path) -> Iterator[list[str]]:
    try:
        for batch in pq.ParquetFile(part).iter_batches(columns=[NAME]):
            yield batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{part} is damaged: {error}. Remove it and all that follow it.") from None


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(len(one) for one in group) >= GROUP:
            yield group
            group = []
    if group:
        yield group

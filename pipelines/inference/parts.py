"""A Parquet file, or a folder of such files, written in parts, so that a killed job resumes with the missing parts.

The parts are in a hidden folder next to the result, and named by the number of their first row. Where several processes
write them, in any order, each writes aside, and the one that holds the lock renames. The result itself appears once it
is complete: as one file with the rows of all parts, or as the folder of the parts. In a bucket, where nothing is
renamed, a folder is complete once the description of the job, next to its parts, is gone.
"""

import json
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from pipelines.core.url import Location, Url
from pipelines.inference import part_files
from pipelines.inference.part_files import SUFFIX, first_row, opened

# Rows per row group of the file; a reader holds at least one row group in memory.
GROUP = 32_768
JOB, LOCK, WHOLE = "job.json", "lock", f"whole{SUFFIX}"
READERS = 16
"""Parts that are opened at the same time."""
NAME, ERROR = "path", "error"

Description = Mapping[str, Any]
"""Everything that determines the content of a file."""


class Parts:
    """The parts of a result; see `open_parts`.

    Args:
        out: the result: a file, or a folder if it has another suffix than `SUFFIX`.
        folder: the folder of its parts.
        job: description of the job.
    """

    def __init__(self, out: Location, folder: Location, job: Description) -> None:
        self.out = out
        self.folder = folder
        self.job = job

    @property
    def is_complete(self) -> bool:
        """True if the result is complete."""
        return self.out.exists() and not (isinstance(self.out, Url) and (self.folder / JOB).exists())

    @property
    def paths(self) -> list[Location]:
        """The complete parts, in order."""
        return part_files.parts(self.folder)

    @property
    def rows(self) -> int:
        """Number of rows in the parts, or in the complete result."""
        return sum(rows for _, rows in _counted(self._files()))

    @property
    def unreadable(self) -> int:
        """Number of these rows with an error."""
        return sum(rows for _, rows in _counted(self._files(), _unreadable))

    def gaps(self) -> list[tuple[int, int | None]]:
        """Returns the ranges of rows that are in no part: first row and end, which is None for the last one.

        Raises:
            UserError: a part is damaged, or is of an earlier version, which numbered parts instead of rows.
        """
        found, row = [], 0
        for part, rows in _counted(self.paths):
            first = first_row(part)
            if first < row:
                raise self._outdated()
            if first > row:
                found.append((row, first))
            row = first + rows
        return [*found, (row, None)]

    def check_columns(self, schema: pa.Schema) -> None:
        """Checks that the parts have all columns of those to be written.

        Args:
            schema: the columns.

        Raises:
            UserError: they are of an earlier version, which had fewer columns.
        """
        for part in self.paths[:1]:
            with opened(part) as file:
                written = pq.read_schema(file).names
            if lacking := [name for name in schema.names if name not in written]:
                raise self._outdated(f" without the column {', '.join(lacking)}")

    def skip(self, names: Iterator[str], first: int = 0) -> int:
        """Skips images that already have a row.

        Args:
            names: names of the images from the first row on; one name is consumed per row.
            first: the row. Parts that follow each other from there are skipped.

        Returns:
            Number of skipped images.

        Raises:
            UserError: the names differ from those in the rows, or a part is damaged.
        """
        row, complete = first, self.is_complete
        for part in files(self.out) if complete else self.paths:
            if not complete and first_row(part) != row:
                continue
            for column in _column(part, NAME):
                written = column.to_pylist()
                found = list(islice(names, len(written)))
                if found != written:
                    raise self._changed(row, written, found, self.out if complete else self.folder)
                row += len(written)
        if complete and next(names, None) is not None:
            raise UserError(
                f"{self.out} is complete with {row:,} images, and there are more now. "
                "Name another file, or remove this one to start over."
            )
        return row - first

    def write(self, table: pa.Table, first: int | None = None) -> None:
        """Writes a part.

        Args:
            table: its rows.
            first: number of its first row; None for the one after the last part.
        """
        with part_files.written(self._path(self.gaps()[-1][0] if first is None else first)) as aside:
            pq.write_table(table, aside, compression="zstd")

    def commit(self, written: str, first: int) -> None:
        """Turns a written file into a part.

        Args:
            written: its name, from `write_aside`.
            first: number of its first row.
        """
        part_files.move(self.folder / written, self._path(first))

    def finish(self, schema: pa.Schema, rows: int) -> None:
        """Assembles the result from the parts, and removes them.

        Args:
            schema: the columns.
            rows: number of rows in all parts.

        Raises:
            UserError: a part was removed in the meantime.
        """
        if self.gaps() != [(rows, None)]:
            raise UserError(f"parts are missing in {self.folder}. Repeat the command to write them.")
        if self.out.suffix != SUFFIX:
            part_files.move_parts(self.folder, self.out)
        else:
            whole = self.folder / WHOLE
            with part_files.written(whole) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
                for group in _groups(_batches(self.paths)):
                    writer.write_table(pa.Table.from_batches(group, schema))
            part_files.move(whole, self.out)
        if isinstance(self.folder, Url):
            # The result is complete from here on.
            (self.folder / JOB).unlink()
        part_files.remove(self.folder)

    def _files(self) -> list[Location]:
        return files(self.out) if self.is_complete else self.paths

    def _path(self, first: int) -> Location:
        return self.folder / f"{first:08}{SUFFIX}"

    def _outdated(self, how: str = "") -> UserError:
        return UserError(
            f"the parts in {self.folder} were written by an earlier version of this program{how}. Finish them with "
            "that version, or remove the folder to start over."
        )

    def _changed(self, rows: int, written: list[str], found: list[str], obsolete: Location) -> UserError:
        index = next((index for index, name in enumerate(found) if name != written[index]), len(found))
        now = f"is now {found[index]}" if index < len(found) else "is now missing"
        return UserError(
            f"the images have changed since {self.out} was begun: number {rows + index + 1:,} was {written[index]} "
            f"and {now}. Name another file, or remove {obsolete} to start over."
        )


def write_aside(table: pa.Table, folder: Location, first: int) -> str:
    """Writes rows to a file that becomes a part once it is committed; no lock is needed.

    Args:
        table: the rows.
        folder: the folder of the parts.
        first: number of the first row.

    Returns:
        The name of the file.

    Raises:
        UserError: there is no such folder, or it is not writable. A full disk raises an `OSError`.

    Example:
        parts.commit(write_aside(table, parts.folder, 0), 0)
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is missing on {socket.gethostname()}. All machines must have the folder of --out.")
    # Two attempts at the same part may run at the same time.
    path = folder / f".{first:08}-{secrets.token_hex(4)}{SUFFIX}"
    with part_files.written(path) as aside:
        pq.write_table(table, aside, compression="zstd")
    return path.name


@contextmanager
def open_parts(out: Location, job: Description) -> Iterator[Parts]:
    """Locks a result until the block ends or the process dies. Its parts are kept for another attempt.

    Args:
        out: the file or folder. In a bucket, nothing is locked.
        job: description of the job.

    Yields:
        The existing parts.

    Raises:
        UserError: another process holds the lock, or the file belongs to another job.

    Example:
        with open_parts(Path("predictions.parquet"), {"model": "demo"}) as parts:
            parts.write(table)
            parts.finish(table.schema, len(table))
    """
    folder = out.with_name(f".{out.name}.parts")
    parts = Parts(out, folder, job)
    refusal = f"another process is writing {out}. Wait for it, or name another file."
    with part_files.lock(folder / LOCK, refusal):
        try:
            _check(parts)
            try:
                if not parts.is_complete:
                    with part_files.written(folder / JOB) as aside:
                        aside.write_text(json.dumps(job, indent=2), encoding="utf-8")
                yield parts
            finally:
                if parts.is_complete:
                    # This or an earlier process may have ended before its last step.
                    part_files.remove(folder)
                    _clear(out)
        finally:
            if not parts.paths:
                part_files.remove(folder)


def files(out: Location) -> list[Location]:
    """Returns the files of a complete result, in order."""
    return part_files.parts(out) if out.is_dir() else [out]


def _check(parts: Parts) -> None:
    if parts.is_complete:
        if (written := _written_by(parts.out)) != parts.job:
            difference = _difference(written, parts.job) if written else None
            how = f": {difference}" if difference else ""
            raise UserError(f"{parts.out} exists and belongs to another job{how}. Name another file, or remove it.")
    elif parts.paths:
        if isinstance(parts.folder, Url) and not (parts.folder / JOB).exists():
            # They are of a complete result, which was removed.
            part_files.remove(parts.folder)
            return
        stored = json.loads((parts.folder / JOB).read_text(encoding="utf-8"))
        if difference := _difference(stored, parts.job):
            raise UserError(
                f"{parts.out} was begun by another job: {difference}. {_to_finish(stored, parts.job)} to finish it, "
                f"name another file, or remove {parts.folder} to start over."
            )


def _difference(before: Description, now: Description) -> str | None:
    """Names the first difference between two jobs; None if there is none."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            return f"{name} was {_text(before.get(name))} and is now {_text(now.get(name))}"
    return None


def _to_finish(begun: Description, now: Description) -> str:
    """Returns what to do: the command that began a result uses the newest version if it names none."""
    if _version(begun) == _version(now):
        return "Repeat that command"
    return f"Name its version, MODEL/{_version(begun)},"


def _version(job: Description) -> str:
    """Returns the version of the model of a job; those of tables name it after the model: "houses 3, SHA-256"."""
    return str(job.get("version") or str(job.get("model")).partition(",")[0].rpartition(" ")[2])


def _clear(out: Location) -> None:
    """Removes all files but the parts from a renamed folder, because readers would take every file for a part."""
    if isinstance(out, Path) and out.is_dir():
        for name in (JOB, LOCK):
            (out / name).unlink(missing_ok=True)


def _written_by(path: Location) -> Description | None:
    """Returns the description of the job that wrote a result; None if it has none."""
    try:
        with opened(files(path)[0]) as file:
            return dict(json.loads(pq.read_schema(file).metadata[b"job"]))
    except (pa.ArrowException, OSError, KeyError, IndexError, TypeError, ValueError):
        return None


def _rows(part: Location) -> int:
    try:
        with opened(part) as file:
            return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from None


def _unreadable(part: Location) -> int:
    return sum(len(column) - column.null_count for column in _column(part, ERROR))


def _counted(parts: list[Location], count: Callable[[Location], int] = _rows) -> list[tuple[Location, int]]:
    """Returns each part with its number of rows, or of some of them; parts in a bucket are read concurrently."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="parts") as pool:
        return list(zip(parts, pool.map(count, parts), strict=True))


def _damaged(part: Location, error: Exception) -> UserError:
    return UserError(f"{part} is damaged: {error}. Remove it, and repeat the command.")


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _column(part: Location, name: str) -> Iterator[pa.Array]:
    try:
        with opened(part) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=[name]):
                yield batch.column(0)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from None


def _batches(parts: Iterable[Location]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with opened(part) as file:
            yield from pq.ParquetFile(file).iter_batches()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(len(one) for one in group) >= GROUP:
            yield group
            group = []
    if group:
        yield group

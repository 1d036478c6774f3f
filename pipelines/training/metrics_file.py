"""metrics.csv: one row per epoch, with the columns of the first row."""

import csv
import io
import os
from collections.abc import Container
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.files import csv_text, write_text

Row = dict[str, float]


def plain_loss_in(metrics: Container[str]) -> str:
    """Returns the name of a run's loss without label smoothing and penalties; see `pipelines.training.net.plain_loss`.

    Args:
        metrics: names of the run's metrics; runs of earlier versions have only "loss".
    """
    return next((name for name in ("cross_entropy", "mse") if name in metrics), "loss")


def append(path: Path, row: Row) -> None:
    """Appends a row; a header precedes the first row.

    Args:
        path: the file; created if missing.
        row: values by column.
    """
    head = [] if path.exists() else [row]
    text = csv_text([*head, [f"{value:.9g}" for value in row.values()]])
    # Other commands may read the file at any time, so it is unbuffered, and truncated if a full disk cuts a row short.
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            _write(file, text.encode())
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def _write(file: io.FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def read(path: Path) -> list[Row]:
    """Reads the rows, oldest first; none if there is no file.

    Raises:
        UserError: a cell is not a number, or a row is too short.
    """
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [{key: float(cell) for key, cell in row.items()} for row in csv.DictReader(file)]
    except (ValueError, TypeError, csv.Error) as error:
        raise UserError(f"{path} is damaged: {error}. Expected a number in each cell.") from error


def truncate(path: Path, rows: int) -> None:
    """Keeps only the first rows: a killed run may have written more rows than its checkpoint has epochs.

    Raises:
        UserError: there are fewer rows.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if rows and len(lines) < rows + 1:
        raise UserError(f"{path} has fewer rows than the checkpoint has epochs ({rows}). Restore it from a copy.")
    if not rows:
        path.unlink(missing_ok=True)
    else:
        write_text(path, "".join(lines[: rows + 1]))

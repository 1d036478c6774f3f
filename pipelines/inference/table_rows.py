"""The rows of a table in CSV, TSV or Parquet, as a model takes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from serving.manifest import Column
from serving.rows import LARGEST, MISSING, category_index

# Texts of a CSV for missing values, besides those of Arrow (empty, NA, null, nan, ...).
MISSING_TEXTS = ("?", "None", "none")
# Unknown categories in a warning.
SHOWN = 3
MICROSECONDS_PER_DAY = 86_400e6


class TableRows(NamedTuple):
    """The rows of a file."""

    values: np.ndarray
    """float32 `[n, columns]`, as a model takes them."""
    truth: np.ndarray | None
    """Targets, float64 `[n]`: indices of classes, -1 for other ones, or numbers; NaN if missing. None without them."""
    warnings: tuple[str, ...]
    """A sentence for each column with unknown categories, which count as missing."""


def read(path: Path, columns: Sequence[Column], target: str, labels: Sequence[str]) -> TableRows:
    """Reads the rows of a file.

    Args:
        path: a CSV, TSV or Parquet file; it may have further columns.
        columns: columns of the model.
        target: the column that the model predicts, which the file need not have.
        labels: names of the classes; none for a regression.

    Raises:
        UserError: the file cannot be read, lacks a column, or has a text in place of a number.

    Example:
        read(Path("houses.csv"), columns, "price", ()).values
    """
    try:
        content = _content(path, {column.name: column for column in columns}, target)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"the table {path} cannot be read: {str(error).splitlines()[0][:200]}.") from error
    if not content.num_rows:
        raise UserError(f"the table {path} has no rows.")
    values = np.empty((content.num_rows, len(columns)), np.float32)
    warnings = []
    for place, column in enumerate(columns):
        if column.categories is None:
            values[:, place] = _numbers(content[column.name], column.name, path)
            continue
        values[:, place], unknown = _indices(content[column.name], column.categories)
        if unknown:
            names = ", ".join([*unknown][:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
            count = sum(unknown.values())
            rows = f"{count:,} row{'s' if count > 1 else ''}"
            warnings.append(f"{column.name} has unknown categories ({names}) in {rows}, which count as missing.")
    truth = None
    if target in content.column_names and labels:
        truth, _ = _indices(content[target], labels)
        truth[content[target].is_null().to_numpy()] = np.nan
    elif target in content.column_names:
        truth = _numbers(content[target], target, path)
    return TableRows(values, truth, tuple(warnings))


def _content(path: Path, columns: Mapping[str, Column], target: str) -> pa.Table:
    """Reads the columns of a file that are needed."""
    is_parquet = path.suffix.lower() == ".parquet"
    if is_parquet:
        names = pq.read_schema(path).names
    else:
        form = _separated(path)
        with pa_csv.open_csv(path, parse_options=form) as reader:
            names = reader.schema.names
    if missing := [name for name in columns if name not in names]:
        several = f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise UserError(f"{path} lacks the {several} that the model takes. It has: {', '.join(names)}.")
    wanted = [name for name in names if name in columns or name == target]
    if len(set(wanted)) < len(wanted):
        raise UserError(f"{path} has more than one column named {max(wanted, key=wanted.count)!r}. Rename them.")
    if is_parquet:
        return pq.read_table(path, columns=wanted)
    # Categories such as 007 are names, not numbers; truth values may be written in several ways.
    texts = [name for name, one in columns.items() if one.categories and not {*one.categories} <= {"true", "false"}]
    return pa_csv.read_csv(
        path,
        # By default, types are those of the first megabyte, and later rows of another type are an error.
        read_options=pa_csv.ReadOptions(block_size=min(max(path.stat().st_size, 2**20), 2**31 - 1)),
        parse_options=form,
        convert_options=pa_csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(texts, pa.string()),
            null_values=[*pa_csv.ConvertOptions().null_values, *MISSING_TEXTS],
            strings_can_be_null=True,
        ),
    )


def _separated(path: Path) -> pa_csv.ParseOptions:
    """Returns how columns are separated: by tabs in a .tsv file, else by commas, or semicolons if its head has more."""
    with path.open("rb") as file:
        head = file.readline()
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;", key=lambda one: head.count(one.encode()))
    return pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _numbers(values: pa.ChunkedArray, name: str, path: Path) -> np.ndarray:
    """Returns the numbers of a column, float64 with NaN for missing ones; dates are days since 1970."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        instants = values.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return instants.cast(pa.float64(), safe=False).to_numpy() / MICROSECONDS_PER_DAY
    try:
        numbers = values.cast(pa.float64(), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        texts = enumerate(values.to_pylist(), 1)
        row, text = next(((row, text) for row, text in texts if not _is_number(text)), (1, values[0].as_py()))
        raise UserError(f"row {row} of {path}: {name} must be a number. Received: {text!r}.") from None
    if (large := np.flatnonzero(np.abs(numbers) > LARGEST)).size:
        raise UserError(f"row {large[0] + 1} of {path}: {name} is too large. Received: {numbers[large[0]]:g}.")
    return numbers


def _is_number(value: Any) -> bool:
    try:
        return value is None or float(value) is not None
    except (TypeError, ValueError):
        return False


def _indices(values: pa.ChunkedArray, categories: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
    """Returns the index of each category, float64, -1 for missing and unknown ones, and counts of the unknown ones."""
    known = {name: index for index, name in enumerate(categories)}
    coded = values.unify_dictionaries().combine_chunks()
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    names = [_plain(name) for name in coded.dictionary.to_pylist()]
    found = [None if name is None else category_index(name, known) for name in names]
    # The last one is for missing values.
    indices = np.array([*(MISSING if one is None else one for one in found), MISSING], np.float64)
    codes = coded.indices.fill_null(len(names)).to_numpy()
    counts = np.bincount(codes, minlength=len(names) + 1).tolist()
    unknown = {
        str(name): count
        for name, one, count in zip(names, found, counts, strict=False)
        if name is not None and one is None and count
    }
    return indices[codes], unknown


def _plain(name: Any) -> str | float | None:
    """Returns the value of a category; None if it is missing."""
    if name is None or (isinstance(name, float) and np.isnan(name)):
        return None
    return name if isinstance(name, str | int | float) else str(name)

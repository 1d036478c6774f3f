"""New rows of a table in CSV, TSV or Parquet, converted to the inputs of a model; `evaluate` and `predict` use them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.core.errors import UserError
from pipelines.core.run import TableColumn
from pipelines.data.own import columns as own_columns
from pipelines.data.own import label_sets
from pipelines.data.own.item import name_of, one_line
from pipelines.data.own.table_files import parts, read_file
from serving.inputs import Column
from serving.rows import DATE, LARGEST, MISSING, TRUTH_VALUES, category_index, days

# Unknown categories or classes in a warning.
SHOWN = 3


class TableRows(NamedTuple):
    """The rows of a file."""

    values: np.ndarray
    """float32 `[n, columns]`, as a model takes them."""
    truth: np.ndarray | None
    """Targets, float64 `[n]`: indices of classes, -1 for other ones, or numbers; or 1 for each of several classes and 0
    for the others, `[n, classes]`. NaN if missing. None without them."""
    warnings: tuple[str, ...]
    """A sentence for each column with unknown categories, which count as missing, and for unknown classes."""

    def known(self, labels: Sequence[str]) -> np.ndarray:
        """Returns the rows whose target a model can be compared with, bool `[n]`.

        Args:
            labels: names of the classes; none for a regression.
        """
        if self.truth is None:
            return np.zeros(len(self.values), bool)
        if self.truth.ndim == 2:
            return ~np.isnan(self.truth).any(axis=1)
        return self.truth >= 0 if labels else ~np.isnan(self.truth)

    def between(self, first: int, end: int | None) -> "TableRows":
        """Returns some of the rows, without warnings."""
        truth = None if self.truth is None else self.truth[first:end]
        return TableRows(self.values[first:end], truth, ())


def read(
    path: Path,
    columns: Sequence[Column | TableColumn],
    target: str,
    labels: Sequence[str],
    *,
    multi_label: bool = False,
    separator: str | None = None,
) -> TableRows:
    """Reads the rows of a file.

    Args:
        path: a CSV, TSV or Parquet file, or a folder of the latter; it may have further columns.
        columns: columns of the model, or of the run that is evaluated.
        target: the column that the model predicts, which the file need not have.
        labels: names of the classes; none for a regression.
        multi_label: whether a row may have any number of classes.
        separator: text between the classes in a cell of the target; None if a cell is one class, or a list.

    Raises:
        UserError: the file cannot be read, lacks a column, or has a text in place of a number.

    Example:
        read(Path("houses.csv"), columns, "price", ()).values
    """
    if not parts(path):
        raise UserError(f"there is no table {path}. Check the path.")
    # Models of earlier versions have line breaks in names of columns, which the columns of the file no longer have, and
    # other forms of accents in names of classes.
    columns, target = [one.model_copy(update={"name": one_line(one.name)}) for one in columns], one_line(target)
    labels = [name_of(label) for label in labels]
    # Categories such as 007 are names, not numbers; truth values may be written in several ways, and classes that were
    # numbers in training as well.
    texts = [one.name for one in columns if one.categories and not {*one.categories} <= TRUTH_VALUES]
    if labels and not {*labels} <= TRUTH_VALUES and not all(map(own_columns.is_number, labels)):
        texts.append(target)
    numbers = [one.name for one in columns if one.categories is None] + ([] if labels else [target])
    content = read_file(path, texts, [target] if labels else (), labels, numbers)
    names = content.column_names
    if missing := [column.name for column in columns if column.name not in names]:
        several = f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise UserError(f"{path} lacks the {several} that the model takes. It has: {', '.join(names)}.")
    if not content.num_rows:
        raise UserError(f"the table {path} has no rows. Add some, or name another table.")

    def values(name: str) -> np.ndarray:
        return own_columns.needed(content[name], name, path)

    features, warnings = np.empty((len(content), len(columns)), np.float32), []
    for place, column in enumerate(columns):
        if column.categories is None:
            has_dates = own_columns.date_of(content.schema.field(column.name).type) is not None
            features[:, place] = _numbers(values(column.name), column, path, has_dates)
            continue
        features[:, place], unknown = _indices(values(column.name), column.categories)
        if unknown:
            warnings.append(f"{column.name} has unknown categories {_listed(unknown)}, which count as missing.")
    truth, others = None, Counter[str]()
    if multi_label:
        if {*label_sets.target_columns(target, names)} <= {*names}:
            truth, others = _sets(content, target, labels, separator, path)
    elif target in names and labels:
        answers = own_columns.as_names(values(target))
        indices, others = _indices(answers, labels)
        truth = np.where(own_columns.is_missing(answers), np.nan, indices)
    elif target in names:
        truth = _numbers(values(target), TableColumn(name=target), path)
    if others:
        effect = "which the scores ignore" if multi_label else "which count in no score"
        warnings.append(f"{target} has classes that the model was not trained on {_listed(others)}, {effect}.")
    return TableRows(features, truth, tuple(warnings))


def _listed(unknown: Counter[str]) -> str:
    """Returns the first unknown names, and the number of their rows."""
    shown = ", ".join([*unknown][:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
    return f"({shown}) in {unknown.total():,} row{'s' if unknown.total() > 1 else ''}"


def _sets(
    content: pa.Table, target: str, labels: Sequence[str], separator: str | None, path: Path
) -> tuple[np.ndarray | None, Counter[str]]:
    """Returns 1 for each class of a row and 0 for the others, `[n, classes]`, and counts of the unknown classes.

    The former is None if cells cannot be split.
    """
    sets = label_sets.of_rows(content, target, separator, path)
    if sets is None:
        own_columns.needed(content[target], target, path)
        return None, Counter()
    missing = own_columns.is_missing(sets)
    # The model cannot predict classes that it does not have.
    known = [tuple(name for name in names or () if name in labels) for names in sets]
    truth = label_sets.hot(known, labels).astype(np.float64)
    truth[missing] = np.nan
    return truth, Counter(name for names in sets for name in names or () if name not in labels)


def _numbers(values: np.ndarray, column: Column | TableColumn, path: Path, has_dates: bool = False) -> np.ndarray:
    if has_dates and not column.date:
        raise UserError(
            f"{column.name} must be a number. {path} has dates there: correct the column. If the model is of an "
            "earlier version, which did not record dates, train it again."
        )
    if values.dtype != object:
        return values
    numbers = np.full(len(values), np.nan)
    for row, text in enumerate(values):
        if text is not None:
            date = days(text) if column.date else None
            numbers[row] = _number(text) if date is None else date
            if np.isnan(numbers[row]):
                wanted = f"a date such as {DATE}" if column.date else "a number"
                raise UserError(f"row {row + 1} of {path}: {column.name} must be {wanted}. Received: {text!r}.")
    return numbers


def _number(text: str) -> float:
    # As in numeric columns, whose numbers Arrow reads: Python's own 1_000 and digits of other scripts are text there.
    try:
        number = float(text) if text.isascii() and "_" not in text else np.nan
    except ValueError:
        return np.nan
    return number if abs(number) <= LARGEST else np.nan


def _indices(values: np.ndarray, categories: Sequence[str]) -> tuple[np.ndarray, Counter[str]]:
    """Returns the index of each category, float64, -1 for missing and unknown ones, and counts of the unknown ones."""
    known = {name: index for index, name in enumerate(categories)}
    listed = [
        None if missing else value
        for value, missing in zip(values.tolist(), own_columns.is_missing(values), strict=True)
    ]
    counts = Counter(value for value in listed if value is not None)
    found = {value: category_index(value, known) for value in counts}
    indices: dict[str | float | None, float] = {value: MISSING if one is None else one for value, one in found.items()}
    unknown = Counter({f"{value}": counts[value] for value, one in found.items() if one is None})
    return np.array([indices.get(value, MISSING) for value in listed], np.float64), unknown

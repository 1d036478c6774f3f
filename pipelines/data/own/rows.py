"""Tables of numbers and categories, in CSV, TSV or Parquet: target, task, columns and splits."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pipelines.core.errors import UserError, nearest
from pipelines.core.run import TableColumn
from pipelines.data.own import column_notes, columns, label_sets, table_files, tables
from pipelines.data.own.columns import CATEGORIES, SurveyedColumn
from pipelines.data.own.item import FEWEST, SPLITS, Split, are_identifiers, in_order, split_of
from pipelines.data.own.survey import IMBALANCE, assign_keys, held_out, refuse_divided

Task = Literal["auto", "classification", "regression"]

# Names of the target if none is given, in order of preference and in any case.
TARGETS = ("target", "label", "class", "y")
# Whole numbers are classes if there are at most this many, each of which occurs this often, and in this share of rows.
CLASSES, OFTEN, SHARE = 20, 5, 0.01
OTHER_TARGET = "Name another column with --target."


@dataclass(frozen=True)
class TableData:
    """The user's own table, read once. Rows without a target are left out."""

    source: str
    """Absolute path of the file."""
    target: str
    """Column that is predicted; or several of 0 and 1, with commas between them."""
    task: str
    """The task, and the reason for it."""
    labels: tuple[str, ...]
    """Names of the classes; none for a regression."""
    columns: tuple[TableColumn, ...]
    """Columns that a net gets."""
    features: np.ndarray
    """float32 [n, columns]: numbers as they are, NaN if missing; the index of a category, -1 if missing or unknown."""
    truth: np.ndarray
    """Classes, int64 [n]; 1 for each of several classes, uint8 [n, classes]; or targets, float32 [n]."""
    splits: Sequence[Split]
    """The split of each row."""
    surveyed: tuple[SurveyedColumn, ...]
    """The values of each of the columns."""
    left_out: Mapping[str, str]
    """Columns that a net does not get, each with the reason."""
    notes: tuple[str, ...]
    """A sentence for each peculiarity of the rows."""

    @property
    def counts(self) -> Counter[Split]:
        """Number of rows in each split."""
        return Counter(self.splits)

    @property
    def multi_label(self) -> bool:
        """True if a row may have any number of classes."""
        return self.truth.ndim == 2


def matches(path: Path) -> bool:
    """Returns whether the data are a table without a column of images.

    Raises:
        UserError: the file cannot be read.
    """
    return bool(table_files.parts(path)) and not tables.has_images(path)


def read(
    path: Path,
    target: str | None = None,
    group: str | None = None,
    task: Task = "auto",
    separator: str | None = None,
    *,
    validation: int = 0,
) -> TableData:
    """Reads a table, chooses columns and task, and assigns rows to splits.

    Rows are assigned by a hash of their content, or of their group, unless a column of texts names the splits.

    Args:
        path: the file, or a folder of Parquet files.
        target: column that is predicted, or several of 0 and 1 with commas between them; None for one named target,
            label, class or y.
        group: column whose equal values stay in one split; None for none.
        task: "auto" predicts classes if the target is text, a boolean, or a whole number with few, frequent values.
        separator: text between the classes in a cell of the target; None if a cell is one class, or a list.
        validation: training rows to hold out; see `survey.held_out`. None of a regression.

    Raises:
        UserError: the file cannot be read, a column is missing, numbers are infinite, there are too few rows, a group
            is in two splits, or the target cannot be predicted.

    Example:
        read(Path("houses.csv"), "price").task  # "regression, because price is a number with ..."
    """
    names = table_files.schema(path).names
    target = _target(names, target, path)
    targets = label_sets.target_columns(target, names)
    content = table_files.read_file(path, classes=() if task == "regression" else targets)
    point = table_files.decimal_point(content)
    found = {name: columns.values(content[name], name, path) for name in content.column_names}
    answers, *_ = [found.pop(name) for name in targets]
    sets = label_sets.of_rows(content, target, separator, path)
    answers = answers if sets is None else sets
    if isinstance(answers, str):
        raise UserError(f"the target {target} of {path} {answers}. {OTHER_TARGET}")
    answers = answers if sets is not None else columns.as_names(answers)
    groups = _groups(group, target, found, path)
    known = ~columns.is_missing(answers)
    answers = answers[known]
    if len(answers) < FEWEST:
        raise UserError(f"{path} has {len(answers)} rows with a {target}. Expected at least {FEWEST}.")
    labels, truth, reason = _task(answers, target, task, point) if sets is None else _sets(answers, target, task)
    if labels and answers.dtype != object and (codes := table_files.padded(path, names, target, known)):
        labels, truth = columns.by_class(codes)
    kept, left_out, given = _chosen(found, group, known, path)
    if not kept:
        reasons = "; ".join(f"{name or 'a column'} {why}" for name, why in left_out.items())
        raise UserError(f"{path} has no column to predict {target} from: {reasons or 'there is no other column'}.")
    keys = _keys([*kept.values(), answers], None if groups is None else groups[known])
    if sets is None:
        names = [(labels[one],) for one in truth] if labels else [("",)] * len(truth)
    else:
        names = answers.tolist()
    if given and groups is not None:
        refuse_divided(columns.as_texts(groups[known]), given)
    splits = given or assign_keys(keys, names)
    if labels:
        splits = held_out(splits, keys, names, validation)
    train = np.array([split == "train" for split in splits])
    _refuse(labels, truth, answers, train, target)
    kinds = {name: content.schema.field(name).type for name in kept}
    described = tuple(columns.described(name, values[train], kinds[name]) for name, values in kept.items())
    features = [columns.numbered(values, column) for values, column in zip(kept.values(), described, strict=True)]
    surveyed = [columns.surveyed(name, values, kinds[name]) for name, values in kept.items()]
    notes = [f"rows without a {target}, which are left out: {(~known).sum():,}."] if not known.all() else []
    notes += _number_notes(found, kept, described, group, None if labels else (target, answers), point=point)
    notes += _copies(keys, splits)
    return TableData(
        source=str(path.absolute()),
        target=target,
        task=reason,
        labels=labels,
        columns=described,
        features=np.column_stack(features).astype(np.float32),
        truth=truth,
        splits=splits,
        surveyed=tuple(surveyed),
        left_out=left_out,
        notes=(*notes, *_notes(kept, target, labels, truth, splits)),
    )


def _chosen(
    found: dict[str, np.ndarray | str], group: str | None, known: np.ndarray, path: Path
) -> tuple[dict[str, np.ndarray], dict[str, str], list[Split] | None]:
    """Chooses the columns to predict from.

    Args:
        found: values of each column but the target, or why it has none.
        group: column of the groups.
        known: rows that have a target, bool [rows].
        path: the file, for messages.

    Returns:
        The values of these columns in the known rows, why each other column is left out, and the splits if a column
        names them.

    Raises:
        UserError: a row has no split, or an unknown one, in the column that names them.
    """
    left_out: dict[str, str] = {}
    kept: dict[str, np.ndarray] = {}
    given: list[Split] | None = None
    for name, values in found.items():
        if isinstance(values, str):
            left_out[name] = values
        elif name == group:
            left_out[name] = "names the groups, whose rows stay in one split"
        elif given is None and _names_splits(name, values[known]):
            given = [split_of(values[row], f"row {row + 1} of {path}", name) for row in np.flatnonzero(known)]
            left_out[name] = "names the splits"
        elif columns.is_index(name, values):
            left_out[name] = "is the index of pandas, which gives away the order of the rows"
        elif why := columns.useless(values, known):
            left_out[name] = why
        else:
            kept[name] = values[known]
    return kept, left_out, given


def _number_notes(
    found: dict[str, np.ndarray | str],
    kept: dict[str, np.ndarray],
    described: Sequence[TableColumn],
    group: str | None,
    target: tuple[str, np.ndarray] | None,
    *,
    point: str,
) -> list[str]:
    """Returns notes about numbers and dates that are read as text, and about digits that float32 loses.

    Args:
        found: see `_chosen`.
        kept: the columns to predict from.
        described: their descriptions.
        group: column of the groups, whose texts are names.
        target: name and values of the target of a regression; None for classes.
        point: decimal point of the file.
    """
    # Also of those that are left out, because numbers that are read as text look like an identifier.
    notes = [
        note
        for name, values in found.items()
        if not isinstance(values, str) and values.dtype == object and name != group
        for note in column_notes.of_texts(name, values, point)
    ]
    if target and (lost := column_notes.lost_digits(target[1])):
        notes.append(f"{target[0]}: {lost}")
    return notes + [
        f"{column.name}: {lost}"
        for column, values in zip(described, kept.values(), strict=True)
        if column.categories is None and (lost := column_notes.lost_digits(values, dates=bool(column.date)))
    ]


def _target(names: Sequence[str], target: str | None, path: Path) -> str:
    missing = [one for one in label_sets.target_columns(target, names) if one not in names] if target else []
    if target and not missing:
        return target
    if target is None:
        by_name = {name.lower(): name for name in reversed(names)}
        found = next((by_name[one] for one in TARGETS if one in by_name), None)
        if found is not None:
            return found
        problem = f"which column of {path} is to be predicted? Name it with --target. "
    else:
        close = nearest(missing[0], names)
        problem = f"{path} has no column {missing[0]!r}. " + (f"Did you mean {close!r}? " if close else "")
    raise UserError(f"{problem}It has: {', '.join(names)}.")


def _groups(group: str | None, target: str, found: Mapping[str, np.ndarray | str], path: Path) -> np.ndarray | None:
    if group is None:
        return None
    values = found.get(group, "is the target" if group == target else "is not there")
    if isinstance(values, str):
        raise UserError(f"{path} cannot be grouped: the column {group} {values}. It has: {', '.join(found)}.")
    return values


def _names_splits(name: str, values: np.ndarray) -> bool:
    """Returns whether a column names the splits: every text column `split`, and a similar one that names any split.

    A wrong cell must not turn test rows into training rows.
    """
    if name.lower() not in tables.SPLIT or values.dtype != object:
        return False
    return name.lower() == tables.SPLIT[0] or any(str(value).strip().lower() in SPLITS for value in values)


def _task(values: np.ndarray, target: str, task: Task, point: str) -> tuple[tuple[str, ...], np.ndarray, str]:
    """Returns the names of the classes, the classes or targets, and the task with its reason."""
    kinds, counts = np.unique(values, return_counts=True)
    if len(kinds) < 2:
        raise UserError(
            f"all rows have the same {target}, {kinds[0]}, so that there is nothing to predict. {OTHER_TARGET}"
        )
    text = values.dtype == object
    whole = not text and bool((values == np.round(values)).all())
    few = whole and len(kinds) <= CLASSES
    frequent = len(kinds) == 2 or counts.min() >= max(OFTEN, SHARE * len(values))
    if text and task != "classification" and (seen := column_notes.notation(values, point)):
        raise UserError(
            f"the target {target} has numbers that are read as text: {seen} If they are names of classes, add --task "
            "classification."
        )
    if text and task == "regression":
        raise UserError(f"the target {target} is not a number, and --task regression needs numbers. {OTHER_TARGET}")
    if task == "auto":
        classes = text or (few and frequent)
        kind = "not a number, and has" if text else f"a {'whole ' if whole else ''}number with"
        rare = ", some of them rare" if few and not classes else ""
        why = f"because {target} is {kind} {len(kinds):,} different values{rare}"
    else:
        classes, why = task == "classification", "as asked for"
    if not classes:
        return (), values.astype(np.float32), f"regression, {why}"
    _refuse_identifiers(len(kinds), len(values), target)
    return *columns.by_class([str(name) for name in columns.as_texts(values)]), f"classification, {why}"


def _sets(sets: np.ndarray, target: str, task: Task) -> tuple[tuple[str, ...], np.ndarray, str]:
    """Returns the result of `_task` for rows with any number of classes."""
    if task == "regression":
        raise UserError(f"the target {target} holds classes, and --task regression needs numbers. {OTHER_TARGET}")
    labels = in_order({name for names in sets for name in names})
    if len(labels) < 2:
        raise UserError(
            f"the target {target} names {'one class' if labels else 'no class'}. Expected two or more. {OTHER_TARGET}"
        )
    _refuse_identifiers(len(labels), len(sets), target)
    return labels, label_sets.hot(sets, labels), "classification, any number of classes for each row"


def _refuse_identifiers(different: int, count: int, target: str) -> None:
    if are_identifiers(different, count):
        raise UserError(
            f"the target {target} has a different value in nearly every row ({different:,} of them). {OTHER_TARGET}"
        )


def class_counts(truth: np.ndarray, classes: int) -> np.ndarray:
    """Returns the number of rows of each class, int [classes].

    Args:
        truth: see `TableData`.
        classes: number of classes.
    """
    return truth.sum(axis=0, dtype=int) if truth.ndim == 2 else np.bincount(truth, minlength=classes)


def _keys(content: Sequence[np.ndarray], groups: np.ndarray | None) -> list[str]:
    """Returns for each row its group, or the digest of its content if it has none."""
    # Adding 0 makes -0 and 0 the same.
    numbers = [np.where(np.isnan(one), np.nan, one + 0.0) for one in content if one.dtype != object]
    matrix = np.column_stack(numbers) if numbers else np.zeros((len(content[0]), 0))
    texts = list(zip(*(one for one in content if one.dtype == object), strict=True)) or [()] * len(matrix)
    keys = [
        hashlib.sha256(row.tobytes() + "\x1f".join(map(str, words)).encode()).hexdigest()
        for row, words in zip(matrix, texts, strict=True)
    ]
    if groups is None:
        return keys
    alone = columns.is_missing(groups)
    return [key if one else f"group {group}" for key, group, one in zip(keys, groups.tolist(), alone, strict=True)]


def _refuse(labels: Sequence[str], truth: np.ndarray, answers: np.ndarray, train: np.ndarray, target: str) -> None:
    if not train.any():
        raise UserError("there are no training rows. Add some, or move some into that split.")
    counts = class_counts(truth[train], len(labels)) if labels else ()
    if missing := [label for label, count in zip(labels, counts, strict=True) if not count]:
        raise UserError(f"no training row has the {target} {missing[0]}. Add some, or remove the rows that have it.")
    if not labels and np.ptp(truth[train]) == 0:
        if lost := column_notes.lost_digits(answers[train]):
            raise UserError(f"all training rows have the same {target} after rounding: its {lost}")
        raise UserError(f"all training rows have the same {target}, so that there is nothing to learn. Add others.")


def _copies(keys: Sequence[str], splits: Sequence[Split]) -> list[str]:
    """Returns a note about rows of the same content in two splits that the data name."""
    first: dict[str, Split] = {}
    copies = {key for key, split in zip(keys, splits, strict=True) if first.setdefault(key, split) != split}
    return [f"rows in two splits, which make scores too high: {len(copies):,}."] if copies else []


def _notes(
    kept: Mapping[str, np.ndarray], target: str, labels: Sequence[str], truth: np.ndarray, splits: Sequence[Split]
) -> Iterator[str]:
    train = np.array(splits) == "train"
    for name, values in kept.items():
        if columns.is_constant(values[train]):
            yield f"{name} is the same in every training row, so predictions ignore it."
        if name.lower() == tables.SPLIT[0] and values.dtype != object:
            yield f"{name} holds numbers, so it is an input: splits are named train, validation and test."
        count = len({*values.tolist()} - {None})
        if values.dtype == object and count > CATEGORIES:
            yield f"{name} has {count:,} categories: the {CATEGORIES} most frequent are used, others count as missing."
    texts = {name: values.tolist() for name, values in kept.items() if values.dtype == object}
    for name, names in (*texts.items(), (target, labels)):
        if alike := column_notes.variants(names):
            yield f"{name} has texts that differ only in case: {alike}. Write them alike if they mean the same."
    for label in labels:
        if label in table_files.MISSING:
            yield f"{target} has the class {label}: leave these cells empty if it stands for a missing value."
    if labels:
        counts = class_counts(truth, len(labels))
        if truth.ndim == 2 and (none := int((~truth.any(axis=1)).sum())):
            yield f"rows without a class: {none:,}."
        most, least = int(counts.argmax()), int(counts.argmin())
        if counts[most] >= IMBALANCE * counts[least]:
            common, rare = f"{labels[most]} has {counts[most]:,} rows", f"{labels[least]} has {counts[least]:,}"
            yield f"{common} and {rare}: a net will prefer common classes."
    if "test" not in splits:
        yield "there is no test split, so the error on new rows cannot be measured."

"""The files of tables, in CSV, TSV or Parquet: separators, decimal points, white space, missing values and classes."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from pipelines.data.own import class_labels
from pipelines.data.own.columns import NOT_UTF8, is_text
from pipelines.data.own.item import SUFFIXES, is_hidden, one_line, split_in
from pipelines.data.roots import TABLES

# Cells of a CSV that are missing values: empty, NA, N/A, NULL, NaN, ... of Arrow, and three more.
MISSING = (*pa_csv.ConvertOptions().null_values, "?", "None", "none")
# Among classes, only an empty cell is missing: NA may be Namibia, and "none" the answer to predict.
MISSING_CLASS = ("",)
# Separators of columns. A comma may also be the decimal point of a file that another one separates.
SEPARATORS = "\t;|,"
# Bytes and rows from which the separator is inferred.
HEAD, ROWS = 2**16, 20
# Data of other formats, which may have Parquet files next to them.
OTHER_DATA = {*SUFFIXES, ".arrow", ".tar"}
# Key of the decimal point in the metadata of a CSV's content.
POINT = b"decimal_point"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# A first line that names the separator, as Excel reads and some programs write it.
NAMED_SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=([\t -~])\"?\r?\n", re.IGNORECASE)


def parts(table: Path) -> list[Path]:
    """Returns the files of a table: itself, or the Parquet files in a folder, as Hugging Face and Spark write them.

    Args:
        table: any file or folder.

    Returns:
        The files in the order of their names; none if it is no table, or a folder with images or archives.

    Raises:
        UserError: the files in the folder may be of several tables, or of an earlier state.
    """
    if not table.is_dir():
        return [table] if table.is_file() and table.suffix.lower() in TABLES else []
    found = []
    for folder, _, names in os.walk(table):
        for file in (Path(folder, name) for name in names):
            # Spark ignores names with an underscore, which are those of its own files.
            if is_hidden(file.relative_to(table)) or file.name.startswith("_"):
                continue
            if file.suffix.lower() in OTHER_DATA:
                return []
            if file.suffix.lower() == ".parquet":
                found.append(file)
    if found and (table / "_delta_log").is_dir():
        raise UserError(f"{table} is a Delta table, whose files may hold deleted rows. Write it as one Parquet file.")
    folders = sorted({_folder(file.relative_to(table)) for file in found})
    if folders[1:]:
        raise UserError(
            f"{table} has Parquet files in several folders ({', '.join(folders[:3])}). Name one of them, or write one "
            "file with all rows, and with what the names of the folders say."
        )
    return sorted(found)


def _folder(file: Path) -> str:
    """Returns the folder of a file, without the names of splits, such as `full` for `full/train/0.parquet`."""
    return "/".join(part for part in file.parent.parts if split_in(Path(part)) is None) or "."


@contextmanager
def reading(table: Path) -> Iterator[None]:
    """Turns the errors of reading a table in the block into a `UserError`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            raise UserError(f"the table {table} {NOT_UTF8}") from error
        fault = str(error).splitlines()[0][:200].rstrip(".")
        raise UserError(f"the table {table} cannot be read: {fault}. Correct it, or write it again.") from error


def separated(table: Path) -> tuple[pa_csv.ParseOptions, int]:
    """Returns the separator of columns: a tab in a .tsv file, else a tab, semicolon, bar or comma, as its rows suggest.

    Args:
        table: the file.

    Returns:
        The separator; and the number of lines before the names of the columns, 1 if the first names the separator.

    Raises:
        UserError: the file is in UTF-16.
    """
    with table.open("rb") as file:
        head = file.read(HEAD)
    if encoding := _utf16(head):
        raise UserError(
            f"the table {table} cannot be read: it is in UTF-16. Convert the file: iconv -f {encoding} -t utf-8."
        )
    named = NAMED_SEPARATOR.match(head)
    one = named[1].decode() if named else "\t" if table.suffix.lower() == ".tsv" else _separator(head)
    return pa_csv.ParseOptions(delimiter=one, newlines_in_values=True), int(named is not None)


def schema(table: Path) -> pa.Schema:
    """Returns the columns of a table, or of the first file of a folder; types of a CSV are those of its first megabyte.

    Raises:
        UserError: the table cannot be read.
    """
    if table.is_dir():
        return schema(parts(table)[0])
    with reading(table):
        if table.suffix.lower() == ".parquet":
            found = pq.read_schema(table)
        else:
            form, skipped = separated(table)
            with pa_csv.open_csv(table, pa_csv.ReadOptions(skip_rows=skipped), form) as reader:
                found = reader.schema
        # White space around a name, as in "a, b", and line breaks in it are no part of it.
        return pa.schema([field.with_name(one_line(field.name)) for field in found], found.metadata)


def read_file(
    path: Path,
    texts: Collection[str] = (),
    classes: Collection[str] = (),
    labels: Collection[str] = (),
    numbers: Collection[str] = (),
) -> pa.Table:
    """Reads a file; the types of a CSV's columns are inferred from all of its rows.

    White space around the names and texts of a CSV is removed. Numbers may have a decimal comma if it does not separate
    columns, and more columns are numbers then.

    Args:
        path: the file, or a folder of Parquet files. Those that are named after splits get a column `split`, unless
            they have one.
        texts: columns to be read as text, such as those with the category 007, if they are whole numbers in Parquet.
        classes: columns that name classes if they are text; only an empty cell is missing then. If there is one, which
            holds the numbers of Hugging Face's class labels, it gets their names.
        labels: classes of a net that is to read the rows; if these are numbers, such as 0 and 1, and none of the names
            is among them, the numbers of class labels stay.
        numbers: columns that hold numbers for a net; commas in all cells of one are decimal commas then, as in 1,250.

    Raises:
        UserError: it cannot be read, two columns have the same name, or a number stands for no class.
    """
    if path.is_dir():
        return _joined(path, texts, classes, labels)
    names, is_parquet = schema(path).names, path.suffix.lower() == ".parquet"
    # In a CSV, a spreadsheet may have added several columns without a name.
    if repeated := [name for name, count in Counter(names).items() if count > 1 and (name or is_parquet)]:
        raise UserError(f"{path} has more than one column named {repeated[0]!r}. Rename them.")
    if is_parquet:
        with reading(path):
            found = pq.read_table(path)
        content = found.rename_columns(names).replace_schema_metadata(found.schema.metadata)
        # Each of several target columns is a class itself, and holds 0 or 1.
        if len(classes) == 1:
            content = class_labels.with_class_names(content, next(iter(classes)), labels, path)
        for place, field in enumerate(content.schema):
            if field.name in texts and pa.types.is_integer(field.type):
                content = content.set_column(place, field.name, content[field.name].cast(pa.string()))
        return content
    with reading(path):
        content = _csv(path, names, texts)
        point = "."
        if separated(path)[0].delimiter != "," and any(
            is_text(field.type) for field in content.schema if field.name not in texts
        ):
            found = _csv(path, names, texts, point=",")
            if _numbers(found, content, texts, numbers, ",") > _numbers(content, found, texts, numbers, "."):
                content, point = found, ","
        for place, name in enumerate(content.column_names):
            if name and _is_huge(content[name]):
                content = content.set_column(place, name, _exact(content[name], path, names, name))
            if is_text(content.schema.field(place).type):
                content = content.set_column(place, name, _trimmed(content[name], name in texts, point))
            if name in classes and is_text(content.schema.field(place).type):
                content = content.set_column(place, name, class_names(path, names, [name])[name])
    return content.replace_schema_metadata({POINT: point})


def decimal_point(content: pa.Table) -> str:
    """Returns the decimal point of what `read_file` has read."""
    return (content.schema.metadata or {}).get(POINT, b".").decode()


def class_names(path: Path, names: Sequence[str], wanted: Sequence[str] = ()) -> pa.Table:
    """Reads columns of a CSV as text, without white space around it; only empty cells are missing.

    Args:
        path: the file.
        names: its columns.
        wanted: columns to read, each with a name of its own; all if there are none.
    """
    content = _csv(path, names, wanted or names, missing=MISSING_CLASS, only=wanted)
    for place, name in enumerate(content.column_names):
        texts = pc.utf8_trim_whitespace(content.column(place))
        content = content.set_column(place, name, pc.if_else(pc.equal(texts, ""), None, texts))
    return content


def padded(path: Path, names: Sequence[str], name: str, known: np.ndarray) -> list[str] | None:
    """Returns whole numbers of a CSV as they are written if one has leading zeros, as codes such as 007 have.

    Args:
        path: the file.
        names: its columns.
        name: a column of numbers.
        known: rows in which it has a number, bool [rows].

    Returns:
        The texts of these rows; None without leading zeros, and for a Parquet file, whose numbers have none.
    """
    if path.is_dir() or path.suffix.lower() == ".parquet":
        return None
    texts = class_names(path, names, [name])[name].filter(pa.array(known))
    is_whole = pc.all(pc.match_substring_regex(texts, r"^[+-]?\d+$")).as_py()
    has_zeros = pc.any(pc.match_substring_regex(texts, r"^[+-]?0\d")).as_py()
    return texts.to_pylist() if is_whole and has_zeros else None


def _joined(folder: Path, texts: Collection[str], classes: Collection[str], labels: Collection[str]) -> pa.Table:
    """Reads a folder of Parquet files; see `read_file`."""
    tables: list[pa.Table] = []
    has_splits = False
    for part in parts(folder):
        content = read_file(part, texts, classes, labels)
        split = split_in(part.relative_to(folder))
        if split and "split" not in content.column_names:
            has_splits = True
            content = content.append_column("split", pa.array([split] * len(content), pa.string()))
        if tables and (other := {*content.column_names} ^ {*tables[0].column_names}):
            if other == {"split"} and has_splits:
                lacking = parts(folder)[0] if "split" in content.column_names else part
                raise UserError(
                    f"{lacking} is named after no split, and other files of {folder} are. Rename it, such as to "
                    "train-0.parquet, or name one file."
                )
            raise UserError(
                f"the files of {folder} have different columns: {min(other)} is not in all of them. Write it into each "
                "of them, or name one file."
            )
        tables.append(content)
    with reading(folder):
        return pa.concat_tables(tables, promote_options="permissive")


def _utf16(head: bytes) -> str:
    """Returns the name of the encoding of a file in UTF-16, given its first bytes; nothing for another file."""
    if head.startswith(UTF16):
        return "utf-16"
    # In most texts, every other byte is zero.
    is_utf16 = 3 * head.count(0) > len(head)
    return ("utf-16be" if head.startswith(b"\0") else "utf-16le") if is_utf16 else ""


def _separator(head: bytes) -> str:
    text, fields = head.decode("utf-8-sig", "replace"), {}
    for one in SEPARATORS:
        rows = [len(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=one) if row]
        # The last row may be cut off.
        fields[one] = (rows[:-1] if len(rows) > 1 and len(head) == HEAD else rows)[:ROWS] or [1]
    # As often in each row as in the header, outside of quotes. Commas come last, because they may be decimal points.
    even = [one for one, counts in fields.items() if len(counts) > 1 and counts[0] > 1 and len({*counts}) == 1]
    return even[0] if even else max(reversed(SEPARATORS), key=lambda one: fields[one][0])


def _csv(
    path: Path,
    names: Sequence[str],
    texts: Collection[str],
    *,
    missing: Sequence[str] = MISSING,
    point: str = ".",
    only: Sequence[str] = (),
) -> pa.Table:
    form, skipped = separated(path)
    with pa_csv.open_csv(path, pa_csv.ReadOptions(skip_rows=skipped), form) as reader:
        written = dict(zip(reader.schema.names, names, strict=False))
    kinds = {raw: pa.string() for raw, name in written.items() if name in texts}
    content = pa_csv.read_csv(
        path,
        # By default, types are those of the first megabyte, and later rows of another type are an error.
        read_options=pa_csv.ReadOptions(block_size=min(max(path.stat().st_size, 2**20), 2**31 - 1), skip_rows=skipped),
        parse_options=form,
        convert_options=pa_csv.ConvertOptions(
            null_values=missing,
            strings_can_be_null=True,
            column_types=kinds,
            decimal_point=point,
            include_columns=[raw for raw, name in written.items() if name in only],
        ),
    )
    found = [written[raw] for raw in content.column_names]
    # Of columns without a name, such as empty ones that a spreadsheet adds, the first stands for all.
    kept = [place for place, name in enumerate(found) if name or "" not in found[:place]]
    return content.rename_columns(found).select(kept)


def _is_huge(column: pa.ChunkedArray) -> bool:
    """Returns whether numbers of a CSV are beyond 64 bits, as some hashes are, for which Arrow rounds them."""
    return pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) >= 2**63


def _exact(column: pa.ChunkedArray, path: Path, names: Sequence[str], name: str) -> pa.ChunkedArray:
    """Returns huge numbers of a CSV with all of their digits if they are whole, else as they are."""
    texts = pc.utf8_trim_whitespace(_csv(path, names, [name], only=[name])[name])
    is_whole = pc.all(pc.match_substring_regex(texts, r"^[+-]?\d{1,38}$")).as_py()
    return texts.cast(pa.decimal128(38)) if is_whole else column


def _numbers(content: pa.Table, other: pa.Table, texts: Collection[str], numbers: Collection[str], point: str) -> int:
    """Returns how many columns are numbers for sure with a decimal point, and not just because it separates thousands.

    Args:
        content: the table, read with this point.
        other: the table, read with the other one.
        texts: columns that are texts in any case.
        numbers: see `read_file`.
        point: the point.
    """
    return sum(
        (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        and not (is_text(as_other.type) and _separates_thousands(as_other, point, field.name in numbers))
        for field, as_other in zip(content.schema, other.columns, strict=True)
        if field.name not in texts
    )


def _separates_thousands(texts: pa.ChunkedArray, point: str, is_number: bool) -> bool:
    """Returns whether a point or comma may separate thousands wherever it occurs in a column, as in 1,234.

    In a column of numbers it may do so only next to numbers without one, such as 999.
    """
    found = texts.filter(pc.match_substring(texts, point))
    if is_number and len(found) == len(texts) - texts.null_count:
        return False
    form = rf"^\s*[+-]?[1-9]\d{{0,2}}(\{point}\d{{3}})+\s*$"
    return len(found) > 0 and pc.all(pc.match_substring_regex(found, form)).as_py()


def _trimmed(column: pa.ChunkedArray, as_text: bool, point: str) -> pa.ChunkedArray:
    """Removes white space around texts, and infers their type again if there was some: " 1" is a number."""
    texts = pc.utf8_trim_whitespace(column)
    if texts.equals(column):
        return column
    if as_text:
        return pc.if_else(pc.is_in(texts, pa.array(MISSING)), None, texts)
    file = io.BytesIO()
    pa_csv.write_csv(pa.table({"text": texts}), file)
    read = pa_csv.ReadOptions(block_size=max(file.tell(), 2**20))
    options = pa_csv.ConvertOptions(null_values=MISSING, strings_can_be_null=True, decimal_point=point)
    file.seek(0)
    form = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    return pa_csv.read_csv(file, read_options=read, parse_options=form, convert_options=options)["text"]

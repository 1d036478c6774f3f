"""Rows of CSV, TSV and Parquet files, as a model takes them."""

import datetime
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.new_rows import read
from serving.inputs import Column
from tests import table_model

COLUMNS = tuple(Column(**column) for column in table_model.COLUMNS)
NEW = Column(name="new", categories=("false", "true"))
NUMBERS = np.float32([[4, 10, 1], [np.nan, 0.5, -1]])


def written(path, content):
    if isinstance(content, str):
        path.write_text(content)
    else:
        pq.write_table(pa.table(content), path)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,city,rooms,age\n7,Rome,4,10\n8,,NA,0.5\n"),
        ("a.csv", "city;rooms;age\nRome;4;10\n?;;0.5\n"),
        ("a.TSV", "city\trooms\tage\nRome\t4\t10\nnone\tnull\t.5\n"),
        ("a.parquet", {"rooms": [4, None], "city": ["Rome", None], "age": [10, 0.5], "id": [7, 8]}),
        (
            "a.parquet",
            {"rooms": [4, float("nan")], "city": pa.array(["Rome", None]).dictionary_encode(), "age": [10, 0.5]},
        ),
    ],
)
def test_the_columns_of_the_model_are_read_in_its_order(tmp_path, name, content):
    found = read(written(tmp_path / name, content), COLUMNS, "price", ())
    np.testing.assert_array_equal(found.values, NUMBERS)
    assert found.values.dtype == np.float32
    assert (found.truth, found.warnings) == (None, ())


def test_three_decimals_after_a_comma_are_no_thousands_in_a_column_of_numbers(tmp_path):
    columns = tuple(Column(name=name, categories=None) for name in "ab")
    found = read(written(tmp_path / "a.csv", "a;b;y\n1,250;2,500;3,125\nNA;7;4,250\n"), columns, "y", ())
    np.testing.assert_array_equal(found.values, np.float32([[1.25, 2.5], [np.nan, 7]]))
    assert found.truth.tolist() == [3.125, 4.25]
    # 1,234 next to 999 may be 1234, unless another column has decimal commas.
    with pytest.raises(UserError, match=r"row 1 of .*a\.csv: a must be a number\. Received: '1,234'"):
        read(written(tmp_path / "a.csv", "a;b\n1,234;1\n999;2\n"), columns, "", ())
    found = read(written(tmp_path / "a.csv", "a;b\n1,234;1,5\n999;2\n"), columns, "", ())
    np.testing.assert_array_equal(found.values, np.float32([[1.234, 1.5], [999, 2]]))


def test_targets_are_classes_or_numbers(tmp_path):
    path = written(tmp_path / "a.csv", "city,rooms,age,sold\nRome,4,10,yes\nOslo,1,2,\nOslo,1,2,perhaps\n")
    np.testing.assert_array_equal(read(path, COLUMNS, "sold", table_model.LABELS).truth, [2, np.nan, -1])
    path = written(tmp_path / "a.csv", "city,rooms,age,price\nRome,4,10,300\nOslo,1,2,\n")
    np.testing.assert_array_equal(read(path, COLUMNS, "price", ()).truth, [300, np.nan])


def test_classes_are_texts_if_one_of_them_is(tmp_path):
    path = written(tmp_path / "a.csv", "city,rooms,age,y\n,,,02\n,,,01\n,,,3\n,,,\n")
    found = read(path, COLUMNS, "y", ("01", "02", "1a"))
    np.testing.assert_array_equal(found.truth, [1, 0, -1, np.nan])
    assert found.warnings == ("y has classes that the model was not trained on (3) in 1 row, which count in no score.",)
    assert found.known(("01", "02", "1a")).tolist() == [True, True, False, False]
    # The classes of a column of numbers may be written in several ways.
    path = written(tmp_path / "a.csv", "city,rooms,age,y\n,,,2.0\n,,,01\n")
    assert read(path, COLUMNS, "y", ("1", "2")).truth.tolist() == [1, 0]


def test_whole_numbers_and_truth_values_are_classes(tmp_path):
    path = written(tmp_path / "a.csv", "city,rooms,age,y\n,,,1\n,,,0\n,,,\n")
    np.testing.assert_array_equal(read(path, COLUMNS, "y", ("0", "1")).truth, [1, 0, np.nan])
    path = written(tmp_path / "a.csv", "city,rooms,age,y\n,,,True\n,,,false\n")
    np.testing.assert_array_equal(read(path, COLUMNS, "y", ("false", "true")).truth, [1, 0])


def test_one_odd_cell_leaves_the_truth_values_of_a_column(tmp_path):
    found = read(written(tmp_path / "a.csv", "new\nTrue\nFalse\nperhaps\n"), (NEW,), "", ())
    assert found.values.ravel().tolist() == [1, 0, -1]
    assert found.warnings == ("new has unknown categories (perhaps) in 1 row, which count as missing.",)


def test_categories_are_texts_even_if_they_read_like_numbers(tmp_path):
    codes = (Column(name="code", categories=("007", "7")),)
    path = written(tmp_path / "a.csv", "code\n007\n7\n")
    assert read(path, codes, "", ()).values.ravel().tolist() == [0, 1]
    path = written(tmp_path / "a.parquet", {"code": [7, 7]})
    assert read(path, codes, "", ()).values.ravel().tolist() == [1, 1]


def test_texts_that_are_numbers_are_numbers(tmp_path):
    path = written(tmp_path / "a.parquet", {"built": ["1970", None, "2e3"]})
    found = read(path, (Column(name="built", categories=None),), "", ()).values
    np.testing.assert_array_equal(found.ravel(), np.float32([1970, np.nan, 2000]))
    path = written(tmp_path / "a.parquet", {"built": ["1970", "1e300"]})
    with pytest.raises(UserError, match=r"row 2 of .*a\.parquet: built must be a number\. Received: '1e300'"):
        read(path, (Column(name="built", categories=None),), "", ())


@pytest.mark.parametrize("text", ["1_000", "\u0661\u0662"])
def test_numbers_are_written_as_in_numeric_columns(tmp_path, text):
    for path in (
        written(tmp_path / "a.csv", f"built\n1970\n{text}\n"),
        written(tmp_path / "a.parquet", {"built": ["1970", text]}),
    ):
        with pytest.raises(UserError, match=rf"row 2 of .*: built must be a number\. Received: '{text}'"):
            read(path, (Column(name="built", categories=None),), "", ())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_accents_of_classes_may_have_two_forms_but_columns_keep_theirs(tmp_path, suffix):
    composed, decomposed = (unicodedata.normalize(form, "caf\xe9") for form in ("NFC", "NFD"))
    content = f"{decomposed},y\n1,{composed}\n2,{decomposed}\n"
    if suffix == ".parquet":
        content = {decomposed: [1, 2], "y": [composed, decomposed]}
    path = written(tmp_path / f"a{suffix}", content)
    for labels in (("bar", composed), ("bar", decomposed)):
        found = read(path, (Column(name=decomposed, categories=None),), "y", labels)
        assert (found.truth.tolist(), found.warnings) == ([1, 1], ())


def test_dates_are_days(tmp_path):
    path = written(tmp_path / "a.parquet", {"built": [datetime.date(1970, 1, 3), None]})
    dated = (Column(name="built", categories=None, date="day"),)
    np.testing.assert_array_equal(read(path, dated, "", ()).values, [[2], [np.nan]])


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "age\n2026-11-26\n"), ("a.parquet", {"age": [datetime.datetime(2026, 11, 26, 12), None]})],
)
def test_dates_are_no_numbers(tmp_path, name, content):
    path = written(tmp_path / name, content)
    said = rf"age must be a number\. {path} has dates there: correct the column\. If .*, train it again\."
    with pytest.raises(UserError, match=said):
        read(path, (Column(name="age", categories=None),), "", ())


def test_unknown_categories_count_as_missing_and_are_named(tmp_path):
    rows = "".join(f"{city},1,1\n" for city in ("Rome", "Bonn", "Bonn", "Kiel", "Ulm", "Jena"))
    found = read(written(tmp_path / "a.csv", f"city,rooms,age\n{rows}"), COLUMNS, "price", ())
    assert found.values[:, 2].tolist() == [1, -1, -1, -1, -1, -1]
    assert found.warnings == ("city has unknown categories (Bonn, Kiel, Ulm, ...) in 5 rows, which count as missing.",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("rooms,id\n4,1\n", r"a\.csv lacks the columns age, city that the model takes\. It has: rooms, id\."),
        ("rooms,age\n4,1\n", r"lacks the column city that"),
        ("rooms,age,city\n4,1,Rome\n4,old,Rome\n", r"row 2 of .*a\.csv: age must be a number\. Received: 'old'\."),
        ("rooms,age,city\n4,1e39,Rome\n", r"the column 'age' of .*a\.csv has the number 1e\+39 in row 1"),
        ("rooms,age,age,city\n4,1,1,Rome\n", "more than one column named 'age'"),
        ("rooms,age,city\n", "has no rows"),
        ("rooms,age,city\n4,1\n", "cannot be read: CSV parse error"),
        ("", "cannot be read"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, content, said):
    with pytest.raises(UserError, match=said):
        read(written(tmp_path / "a.csv", content), COLUMNS, "price", ())


TIME, NUMBERS_IN_LISTS = datetime.time(12, 30), [[0.5], [1.5]]


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ({"age": [TIME, None]}, {}, r"'age' of .*a\.parquet holds values of the type time64\[us\]\. Expected numbers"),
        ({"rooms": [datetime.timedelta(1), None]}, {}, r"'rooms' .* holds values of the type duration\[us\]\."),
        ({"city": NUMBERS_IN_LISTS}, {}, r"'city' .* holds values of the type list<.*double>\."),
        ({"price": NUMBERS_IN_LISTS}, {}, r"'price' .* holds values of the type list<.*double>\."),
        ({"price": NUMBERS_IN_LISTS}, {"multi_label": True}, r"'price' .* holds values of the type list<.*double>\."),
    ],
)
def test_columns_of_other_types_are_refused_and_empty_ones_are_missing(tmp_path, content, options, said):
    empty = {"rooms": [None] * 2, "age": [None] * 2, "city": [None] * 2}
    with pytest.raises(UserError, match=f"the column {said}"):
        read(written(tmp_path / "a.parquet", empty | content), COLUMNS, "price", (), **options)
    found = read(written(tmp_path / "b.parquet", empty), COLUMNS, "price", (), **options).values
    np.testing.assert_array_equal(found, [[np.nan, np.nan, -1]] * 2)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_missing_or_damaged_file_is_reported(tmp_path, name):
    with pytest.raises(UserError, match=rf"there is no table .*{name}"):
        read(tmp_path / name, COLUMNS, "price", ())
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot be read|lacks the columns"):
        read(tmp_path / name, COLUMNS, "price", ())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_models_of_earlier_versions_have_line_breaks_in_names(tmp_path, suffix):
    columns = (Column(name="net\nprice", categories=None), Column(name=" city", categories=("Oslo", "Rome")))
    content = '"net\nprice"," city","sold\nin"\n1.5,Rome,3\n'
    if suffix == ".parquet":
        content = {"net\nprice": [1.5], " city": ["Rome"], "sold\nin": [3.0]}
    found = read(written(tmp_path / f"a{suffix}", content), columns, "sold\nin", ())
    assert (found.values.tolist(), found.truth.tolist()) == ([[1.5, 1]], [3])


def test_texts_in_a_column_of_dates_are_dates(tmp_path):
    dated = (Column(name="built", categories=None, date="time"),)
    for name, content in (
        ("a.csv", "built\n1970-01-02\n1970-01-02 12:00\nNA\n"),
        ("a.csv", "built,x\n1970-01-02T00:00+00:00,\n1.5,\n,\n"),
        ("a.parquet", {"built": ["1970-01-02", "1970-01-02T12:00:00", None]}),
    ):
        found = read(written(tmp_path / name, content), dated, "", ()).values
        np.testing.assert_array_equal(found.ravel(), [1, 1.5, np.nan])
    with pytest.raises(UserError, match=r"row 2 of .*: built must be a date such as 2026-11-26\. Received: 'soon'"):
        read(written(tmp_path / "a.csv", "built\n1970-01-02\nsoon\n"), dated, "", ())


def test_rows_with_any_number_of_classes_have_a_truth_for_each(tmp_path):
    labels, options = ("no", "yes"), {"multi_label": True}
    given = "city,rooms,age,{}\n"
    path = written(tmp_path / "a.csv", given.format("sold") + ",,,yes;no\n,,,\n,,,other;yes\n")
    expected = [[1, 1], [0, 0], [0, 1]]
    found = read(path, COLUMNS, "sold", labels, separator=";", **options)
    np.testing.assert_array_equal(found.truth, expected)
    assert found.warnings == (
        "sold has classes that the model was not trained on (other) in 1 row, which the scores ignore.",
    )
    # Without a separator, a cell cannot be split.
    assert read(path, COLUMNS, "sold", labels, **options).truth is None
    path = written(tmp_path / "a.csv", given.format("no,yes") + ",,,1,1\n,,,0,0\n,,,0,1\n,,,,1\n")
    found = read(path, COLUMNS, "no,yes", labels, **options).truth
    np.testing.assert_array_equal(found, [*expected, [np.nan, np.nan]])
    assert read(written(tmp_path / "b.csv", "city,rooms,age\n,,1\n"), COLUMNS, "sold", labels, **options).truth is None

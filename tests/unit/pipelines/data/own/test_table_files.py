"""Files of tables: encodings, separators, notations of numbers, and what counts as missing."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own import new_rows, rows
from tests.unit.pipelines.data.own.small_tables import COUNT, numbers, with_x


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x,y\n1,2,3\n", "table.csv cannot be read"),
        (b"x,x,y\n1,2,3\n", "more than one column named 'x'"),
        (b"", "table.csv cannot be read"),
        ("x,y\nJos\u00e9,1\n".encode("latin1") * 20, "'x' of .*table.csv is not in UTF-8|cannot be read"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        rows.read(tmp_path / "table.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "gr\u00f6\u00dfe,y\n1,2\n".encode("latin1"),
            r"table\.csv is not in UTF-8\. Convert the file: iconv -f latin1",
        ),
        ("x,y\n1,2\n".encode("utf-16"), r"is in UTF-16\. Convert the file: iconv -f utf-16 -t utf-8"),
        # Without a byte order mark.
        ("x,y\n1,2\n".encode("utf-16-le"), r"is in UTF-16\. Convert the file: iconv -f utf-16le -t utf-8"),
        ("x,y\n1,2\n".encode("utf-16-be"), r"is in UTF-16\. Convert the file: iconv -f utf-16be -t utf-8"),
    ],
)
def test_another_encoding_is_named(tmp_path, content, message):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        rows.matches(tmp_path / "table.csv")
    with pytest.raises(UserError, match=message):
        rows.read(tmp_path / "table.csv")


@pytest.mark.parametrize("first", ["sep=;\n", '\ufeff"sep=;"\r\n', "SEP=;\n"])
def test_the_first_line_may_name_the_separator(written, first):
    columns = {"a,b": ["1,5", "2,5"] * 30, "city": ["Rome", "Oslo"] * 30, "y": numbers()}
    path = written(columns, comma=";")
    expected = rows.read(path)
    path.write_text(first + path.read_text())
    found = rows.read(path)
    assert found.columns == expected.columns
    np.testing.assert_array_equal(found.features, expected.features)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_of_columns_are_texts_of_one_line(written, suffix):
    in_file = ('"price\n(EUR)"', " size") if suffix == ".csv" else ("price\r\n(EUR)", " size")
    path = written({in_file[0]: numbers(), in_file[1]: numbers(seed=2), "y ": numbers(seed=1)}, suffix)
    found = rows.read(path, "y")
    assert [one.name for one in found.columns] == ["price (EUR)", "size"]
    again = new_rows.read(path, found.columns, "y", ())
    np.testing.assert_array_equal(again.values, found.features)


HASHES = 2**60, 2**60 + 1, 2**64 - 1, 2**64 - 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("hashes", [HASHES[:2], HASHES[2:], HASHES])
def test_whole_numbers_that_float64_rounds_may_be_names(written, suffix, hashes):
    column = list(hashes) * (COUNT // len(hashes))
    if suffix == ".parquet":
        column = pa.array(column, pa.uint64())
    path = written(with_x(owner=column, y=column), suffix)
    found = rows.read(path)
    assert found.labels == found.columns[1].categories == tuple(map(str, sorted(hashes)))
    again = new_rows.read(path, found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.values, found.features)
    np.testing.assert_array_equal(again.truth, found.truth)


def test_ids_beyond_float64_identify_rows_and_large_quantities_are_numbers(written):
    # One after the other, and spread out.
    ids, quantities = [2**60 + number for number in range(COUNT)], [2**60 + 10**14 * number for number in range(COUNT)]
    found = rows.read(written(with_x(id=ids, amount=quantities[::-1], y=numbers(seed=1))))
    assert found.left_out == {"id": "is text with a different value in nearly every row (60), like an identifier"}
    assert [(one.name, one.categories) for one in found.columns] == [("x", None), ("amount", None)]
    assert rows.read(written(with_x(y=[10**19 + 10**17 * number for number in range(COUNT)]))).labels == ()
    # No hashes, although they are few.
    found = rows.read(written(with_x(avogadro=["6.02e23", "1e23", ""] * 20, y=numbers(seed=1))))
    assert found.columns[1].categories is None


@pytest.mark.parametrize("comma", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ['"a, b; c"', "tags"])
def test_the_separator_is_inferred_from_the_rows(written, comma, name):
    if comma != ",":
        # A comma that separates nothing may be anywhere.
        name = name.replace("tags", "size, in cm")
    found = rows.read(written({name: numbers(), "z": numbers(seed=2), "y": numbers(seed=1)}, comma=comma))
    assert [one.name for one in found.columns] == [name.strip('"'), "z"]
    assert found.task.startswith("regression")


def test_white_space_around_names_and_texts_does_not_count(written):
    columns = {
        "x": [f"{number} " for number in numbers()],
        " z": [" NA", *numbers(59)],
        "\tcity": ["Rome", " Rome ", "Oslo", " "] * 15,
        " day": [f" 2020-01-{1 + number % 28:02}" for number in range(COUNT)],
        " y ": ["no", " no", "yes", ""] * 15,
    }
    path = written(columns)
    found = rows.read(path)
    named = [(one.name, one.categories, one.date) for one in found.columns]
    assert named == [
        ("x", None, None),
        ("z", None, None),
        ("city", ("Oslo", "Rome"), None),
        ("day", None, "day"),
    ]
    assert (found.target, found.labels, len(found.truth)) == ("y", ("no", "yes"), 45)
    again = new_rows.read(path, found.columns, found.target, found.labels)
    np.testing.assert_array_equal(again.values[~np.isnan(again.truth)], found.features)
    assert again.warnings == ()


def test_several_columns_may_have_no_name(tmp_path):
    lines = [f"{number % 7},{number % 11},{'ab'[number % 2]},text," for number in range(COUNT)]
    (tmp_path / "table.csv").write_text("\n".join(["z,x,y,, ", *lines]) + "\n")
    found = rows.read(tmp_path / "table.csv")
    assert [one.name for one in found.columns] == ["z", "x"]
    assert found.left_out == {"": "has no name"}
    again = new_rows.read(tmp_path / "table.csv", found.columns, found.target, found.labels)
    np.testing.assert_array_equal(again.values, found.features)
    (tmp_path / "table.csv").write_text("y,,\n" + "a,1,\nb,2,\n" * 9)
    with pytest.raises(UserError, match="no column to predict y from: a column has no name"):
        rows.read(tmp_path / "table.csv")
    # Nothing adds them to a Parquet file, which cannot be read with them.
    columns = [pa.array(numbers()), pa.array(numbers()), pa.array(["a", "b"] * 30)]
    pq.write_table(pa.Table.from_arrays(columns, names=["", "", "y"]), tmp_path / "table.parquet")
    with pytest.raises(UserError, match=r"more than one column named ''\. Rename them"):
        rows.read(tmp_path / "table.parquet")


def test_numbers_may_have_a_decimal_comma_where_it_separates_nothing(written):
    columns = {"size": numbers(), "count": [*range(30)] * 2, "city": ["Rome", "1.5"] * 30, "y": numbers(seed=1)}
    plain = rows.read(written(columns, comma=";"))
    commas = {name: [str(value).replace(".", ",") for value in columns[name]] for name in ("size", "y")}
    path = written(columns | commas, comma=";")
    found = rows.read(path)
    assert [(one.name, one.categories) for one in found.columns] == [
        ("size", None),
        ("count", None),
        ("city", ("1.5", "Rome")),
    ]
    np.testing.assert_array_equal(found.features, plain.features)
    np.testing.assert_array_equal(found.truth, plain.truth)
    again = new_rows.read(path, found.columns, "y", ())
    np.testing.assert_array_equal(again.values, found.features)
    np.testing.assert_array_equal(again.truth.astype(np.float32), found.truth)


@pytest.mark.parametrize(("comma", "thousands", "decimals"), [("\t", ",", "."), (";", ".", ",")])
def test_thousands_separators_are_no_decimal_commas(written, comma, thousands, decimals):
    people = [f"{number:,}".replace(",", thousands) for number in range(200, 200 + 97 * COUNT, 97)]
    rates = [str(number).replace(".", decimals) for number in numbers()]
    columns = {"people": people, "age": [20, 30, 40] * 20, "rate": rates, "y": ["a", "b"] * 30}
    found = rows.read(written(columns, comma=comma))
    assert [one.name for one in found.columns] == ["age", "rate"]
    assert f"people has numbers that are read as text: thousands separators ({people[9]})" in str(found.notes)
    # No number would be a decimal number without them.
    del columns["rate"]
    if decimals == ".":
        assert [one.name for one in rows.read(written(columns, comma=comma)).columns] == ["age"]
    # All of one column may look like thousands if another column shows the decimal point.
    sizes = [f"{1.125 + number:.3f}".replace(".", decimals) for number in range(COUNT)]
    found = rows.read(written({"size": sizes, "rate": rates, "y": ["a", "b"] * 30}, comma=comma))
    assert found.features[:2, 0].tolist() == [1.125, 2.125]


@pytest.mark.parametrize(("comma", "point"), [(",", "."), (";", ","), (None, ".")])
def test_a_point_separates_thousands_only_next_to_decimal_commas(written, comma, point):
    columns = {
        "size": ["1.459", "1.389"] * 29 + ["closed"] * 2,
        "rate": [str(number).replace(".", point) for number in numbers()],
        "y": ["a", "b"] * 30,
    }
    notes = rows.read(written(columns, comma=comma) if comma else written(columns, ".parquet")).notes
    assert ("thousands separators (1.459)" in str(notes)) == (point == ",")


ODD = {
    "thousands separators (1,234.5)": ['"1,234.5"', '"2,345.5"', "12.5"],
    "thousands separators (1'234)": ["1'234", "5'678'901", "7"],
    "percent signs (12%)": ["12%", "7.5 %", "3%"],
    "currency signs ($12.50)": ["$12.50", "-$3", "7"],
    "currency signs (12,5 \u20ac)": ['"12,5 \u20ac"', '"1.234.567,5\u20ac"', "7"],
    "cells without a number (-)": ["1.5", "-", "2.5"],
    "minus signs that are no hyphens (\u22121.5)": ["\u22121.5", "2.5", "\u22122"],
    "decimal commas (20,5)": ['"20,5"', '"3,25"', "4"],
}


@pytest.mark.parametrize("seen", ODD)
def test_numbers_that_are_read_as_text_are_named(written, seen):
    values = ODD[seen] * 20
    found = rows.read(written(with_x(z=values, y=numbers(seed=1))))
    (note,) = [one for one in found.notes if one.startswith("z ")]
    assert note.startswith(f"z has numbers that are read as text: {seen}. Write plain numbers")
    path = written(with_x(y=values))
    for task in ("auto", "regression"):
        with pytest.raises(
            UserError, match=r"the target y has numbers that are read as text: .*\. Write plain"
        ) as error:
            rows.read(path, task=task)
        assert seen in str(error.value)
        assert str(error.value).endswith("If they are names of classes, add --task classification.")
    assert len(rows.read(path, task="classification").labels) > 1


def test_texts_among_many_numbers_are_named(written):
    values = [*numbers(57), "unknown", "Total", None]
    found = rows.read(written(with_x(z=values, y=numbers(seed=1))))
    assert any(
        note.startswith("z has numbers that are read as text: cells without a number (unk") for note in found.notes
    )
    assert "(unknown). If these are numbers, write plain numbers, " in str(found.notes)
    with pytest.raises(
        UserError, match=r"the target y has numbers that are read as text: cells without a number \(unkno"
    ):
        rows.read(written(with_x(y=values)))
    # A few different numbers may be categories, as may the other texts.
    values = [*range(20), *range(20), *range(19), "20+"]
    found = rows.read(written(with_x(z=values, y=values), ".csv"), task="classification")
    assert not any("numbers" in note for note in found.notes)


@pytest.mark.parametrize("form", ["{0}.{1}.2026", "{1}/{0}/26 10:15", "2026/{1}/{0}"])
def test_dates_that_are_read_as_text_are_named(written, form):
    days = [form.format(1 + number % 28, 1 + number % 12) for number in range(COUNT)]
    found = rows.read(written(with_x(day=days, y=numbers(seed=1))))
    assert f"day has dates that are read as text: {days[0]}. Write them as 2026-11-26." in found.notes
    months = [f"2026-{1 + number % 12:02}" for number in range(COUNT)]
    found = rows.read(written(with_x(month=months, y=numbers(seed=1))))
    assert found.notes == ("month has dates that are read as text: 2026-01. Write them as 2026-11-26.",)
    no_dates = ["20-00-00", "10-13-14"] * 30, ["4.12.99999", "1.2.345"] * 30
    for texts in (["1.1.1"] * 30 + ["2.1.1"] * 30, ["10.1.26", "a", "b"] * 20, *no_dates):
        assert rows.read(written(with_x(version=texts, y=numbers(seed=1)))).notes == ()


def test_a_cell_that_turns_dates_into_texts_is_named(written):
    for wrong in ("unknown", "2026-02-30", "5"):
        days = [f"2026-01-{1 + number % 28:02}" for number in range(COUNT - 1)] + [wrong]
        found = rows.read(written(with_x(day=days, y=numbers(seed=1))))
        (note,) = found.notes
        assert note.startswith(
            f"day has dates that are read as text, because of {wrong}. Write all of them as 2026-11-"
        )
    mixed = ["2026-01-05T10:00", "2026-01-06T10:00Z", "2026-01-07"] * 20
    (note,) = rows.read(written(with_x(day=mixed, y=numbers(seed=1)))).notes
    assert note.startswith("day has dates that are read as text, because some have a UTC offset and others have none.")
    texts = ["2026-01-05", "2026-01-06 10:00"] * 30
    (note,) = rows.read(written(with_x(day=texts, y=numbers(seed=1)), ".parquet")).notes
    assert note == "day has dates that are read as text: 2026-01-05. Convert the column to dates."
    # Likewise a date among numbers, however few these are.
    found = rows.read(written(with_x(z=[*range(10)] * 5 + ["2026-01-05", *range(9)], y=numbers(seed=1))))
    assert any(
        note.startswith("z has numbers that are read as text: cells without a number (2026-") for note in found.notes
    )


def test_other_texts_are_no_numbers(written):
    for values in (["1-3", "4-6", "7"] * 20, ["-", "a", "b"] * 20, ["007", "012", "A1"] * 20, ["1,5", "a", "b"] * 20):
        quoted = [f'"{value}"' for value in values]
        found = rows.read(written(with_x(z=quoted, y=quoted)))
        assert len(found.labels) == 3
        assert not any("numbers" in note for note in found.notes)


def test_codes_are_no_numbers(written):
    postcodes = [*(str(20_000 + number) for number in range(28)), "01067", "K1A"] * 2
    phones = ["030 123 456", "040 123 457", "221 123 458"] * 20
    for codes in (postcodes, phones):
        found = rows.read(written(with_x(z=codes, y=codes)))
        assert len(found.labels) == len({*codes})
        assert not any("numbers" in note for note in found.notes)


def test_only_columns_that_may_be_inputs_are_checked_for_numbers(written):
    # A column of such numbers looks like an identifier.
    prices = [f'"{1 + number},{number % 10}00.50"' for number in range(COUNT)]
    found = rows.read(written(with_x(price=prices, y=numbers(seed=1))))
    assert "price" in found.left_out
    assert any(note.startswith("price has numbers that are read as text") for note in found.notes)
    found = rows.read(written(with_x(price=prices, y=numbers(seed=1))), group="price")
    assert not any(note.startswith("price has numbers") for note in found.notes)


def test_texts_that_differ_only_in_case_are_named(written):
    found = rows.read(written(with_x(city=["Rome", "rome", "Oslo"] * 20, y=["No", "no", "yes"] * 20)))
    for name, texts in (("city", "Rome, rome"), ("y", "No, no")):
        said = f"{name} has texts that differ only in case: {texts}. Write them alike if they mean the same."
        assert said in found.notes


def test_digits_that_float32_loses_are_named(written):
    seconds = [1_700_000_000 + 7 * number % 60 for number in range(COUNT)]
    times = [datetime.datetime(2020, 1, 1, 0, 0, second % 60) for second in seconds]
    price = [1e6 + number / 100 for number in range(COUNT)]
    found = rows.read(written(with_x(t=seconds, time=times, y=price)))
    assert "t: 60 different values become 1 in float32, in which nets compute. Subtract a constant such as " in str(
        found.notes
    )
    assert any(note.startswith("time: 60 different values become 1") for note in found.notes)
    assert any(note.startswith("y: 60 different values become ") for note in found.notes)
    assert "Subtract a constant such as 1,000,000, in new rows too." in str(found.notes)
    with pytest.raises(
        UserError, match=r"all training rows have the same y after rounding: its .* become 1 in float32"
    ):
        rows.read(written(with_x(y=[1e9 + number for number in numbers()])))
    # Ordinary numbers lose digits that do not matter.
    precise = np.random.default_rng(0).normal(size=(2, 60_000))
    path = written({"x": precise[0].tolist(), "y": precise[1].tolist()})
    assert rows.read(path).notes == ()


@pytest.mark.parametrize("name", ["NA", "none", "?", "null", "nan"])
def test_a_class_may_have_the_name_of_a_missing_value(written, name):
    columns = with_x(alley=[name, "gravel", "paved"] * 20, y=[name, "mild", "severe", ""] * 15)
    found = rows.read(written(columns))
    assert set(found.labels) == {name, "mild", "severe"}
    assert len(found.truth) == 45
    # A feature is missing there.
    assert found.columns[1].categories == ("gravel", "paved")
    assert f"y has the class {name}: leave these cells empty if it stands for a missing value." in found.notes
    again = new_rows.read(written(columns), found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.truth[~np.isnan(again.truth)], found.truth)
    # In a target of numbers it is missing.
    assert len(rows.read(written(with_x(y=[name, 0.5, 1.5, 2.5] * 15))).truth) == 45


def parquet_files(folder, **tables):
    folder.mkdir()
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    names = [pa.array(["a", "b"] * 30).dictionary_encode(), pa.array(["c", "b"] * 30).dictionary_encode()]
    train = with_x(z=range(60), name=names[0], y=["p", "q"] * 30)
    # Whole numbers in one file may be others in the next; so may the order of the columns be.
    test = dict(reversed(with_x(z=np.arange(60) + 0.5, name=names[1], y=["q", "p"] * 30).items()))
    path = parquet_files(tmp_path / "data", **{"train-0": train, "test-0": test})
    assert rows.matches(path)
    found = rows.read(path)
    assert found.counts == {"train": 60, "test": 60}
    columns = {one.name: one.categories for one in found.columns}
    assert columns == {"x": None, "z": None, "name": ("a", "b")}
    assert {*found.features[np.array(found.splits) == "test"][:, [*columns].index("z")]} == {*(np.arange(60) + 0.5)}
    again = new_rows.read(path, found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.values, found.features)
    np.testing.assert_array_equal(again.truth, found.truth)
    # Without names of splits, a hash assigns the rows, as it does those of one file.
    path = parquet_files(tmp_path / "parts", **{"part-0": train, "part-1": test})
    assert len(rows.read(path).counts) == 3


@pytest.mark.parametrize("other", ["extra", "zebra"])
def test_all_or_no_files_of_a_table_are_named_after_splits(tmp_path, other):
    columns = with_x(y=[0, 1] * 30)
    path = parquet_files(tmp_path / "data", **{"train-0": columns, other: columns})
    with pytest.raises(UserError, match=rf"{other}\.parquet is named after no split, and other files of .*data are\."):
        rows.read(path)


def test_files_of_one_table_have_the_same_columns(tmp_path):
    path = parquet_files(tmp_path / "data", a=with_x(y=[0, 1] * 30), b={"y": [0, 1] * 30})
    with pytest.raises(UserError, match=r"the files of .*data have different columns: x is not in all of them\. Write"):
        rows.read(path)
    path = parquet_files(tmp_path / "types", a=with_x(y=[0, 1] * 30), b={"x": ["a"] * 60, "y": [0, 1] * 30})
    with pytest.raises(UserError, match=r"the table .*types cannot be read: .*incompatible"):
        rows.read(path)


def test_types_are_inferred_from_all_rows(tmp_path):
    # More than the first megabyte, in which all are whole numbers.
    lines = ["x,y", *(f"123456789,{number % 97}.5" for number in range(100_000)), "0.5,2", "7,1"]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    assert rows.read(tmp_path / "table.csv", task="regression").features[100_000, 0] == 0.5

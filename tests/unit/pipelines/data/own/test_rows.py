"""Tables of numbers: which columns count, what is predicted, and where rows belong."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.core.run import DataRecord
from pipelines.data.own import new_rows, rows
from pipelines.data.own.columns import CATEGORIES
from tests import houses, shapes
from tests.unit.pipelines.data.own.small_tables import COUNT, numbers, with_x


@pytest.mark.parametrize(("suffix", "comma"), [(".csv", ","), (".csv", ";"), (".tsv", "\t"), (".parquet", "")])
def test_every_format_holds_the_same_table(written, suffix, comma):
    columns = {
        "size": [None, *numbers()[1:]],
        "city": [None, *["Rome", "Oslo"] * 29, "Rome"],
        "new": [True, False] * 30,
        "day": [datetime.date(2020, 1, 1 + number % 28) for number in range(COUNT)],
        "y": numbers(seed=1),
    }
    found = rows.read(written(columns, suffix, comma))
    assert [(one.name, one.categories) for one in found.columns] == [
        ("size", None),
        ("city", ("Oslo", "Rome")),
        ("new", ("false", "true")),
        ("day", None),
    ]
    assert found.features.dtype == np.float32
    np.testing.assert_allclose(found.features[:, 0], [np.nan, *columns["size"][1:]], rtol=1e-6)
    assert found.features[:3, 1].tolist() == [-1, 1, 0]
    assert found.features[:2, 2].tolist() == [1, 0]
    assert found.features[:2, 3].tolist() == [18262, 18263]
    np.testing.assert_allclose(found.truth, columns["y"], rtol=1e-6)
    assert (found.target, found.labels) == ("y", ())
    # The training rows alone decide, and the gap is in one row.
    assert found.columns[0].missing == (found.splits[0] == "train")
    assert found.columns[0].inputs == 1 + found.columns[0].missing
    assert found.columns[1].inputs == 2


@pytest.mark.parametrize(
    ("values", "labels", "reason"),
    [
        (["b", "a"] * 30, ("a", "b"), "classification, because y is not a number, and has 2 different values"),
        ([True, False] * 30, ("false", "true"), "classification, because y is not a number"),
        ([0, 1] * 30, ("0", "1"), "classification, because y is a whole number with 2 different values"),
        ([-1, 10, 2] * 20, ("-1", "2", "10"), "classification"),
        ([1.0, 2.0, None] * 20, ("1", "2"), "classification"),
        ([0] * 59 + [1], ("0", "1"), "classification"),
        ([*range(20)] * 3, (), "regression, because y is a whole number with 20 different values, some of them rare"),
        ([*range(30)] * 2, (), "regression, because y is a whole number with 30 different values"),
        ([0.5, 1.5] * 30, (), "regression, because y is a number with 2 different values"),
    ],
)
def test_the_values_of_the_target_decide_the_task(written, values, labels, reason):
    if set(values) == {0, 1} and sum(values) == 1:
        # A class of a single row is in the training split.
        assert rows.read(written(with_x(y=values))).splits[-1] == "train"
    found = rows.read(written(with_x(y=values)))
    assert found.labels == labels
    assert found.task.startswith(reason)
    kept = [value for value in values if value is not None]
    if labels:
        assert found.truth.dtype == np.int64
        named = [str(value).lower().removesuffix(".0") for value in kept]
        assert [labels[one] for one in found.truth] == named


def test_a_task_can_be_asked_for(written):
    path = written(with_x(y=[1, 2, 3] * 20))
    assert rows.read(path, task="regression").labels == ()
    assert rows.read(path, task="regression").task == "regression, as asked for"
    many = written(with_x(y=[*range(30)] * 2))
    assert len(rows.read(many, task="classification").labels) == 30
    with pytest.raises(UserError, match="target y is not a number, and --task regression needs numbers"):
        rows.read(written(with_x(y=["a", "b"] * 30)), task="regression")


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("same", [7] * COUNT, "is the same in every row"),
        ("same", ["here"] * COUNT, "is the same in every row"),
        ("name", [f"person {number}" for number in range(COUNT)], "is text with a different value in nearly every row"),
        ("number", list(range(COUNT)), "numbers the rows"),
        ("", list(range(5, 5 + COUNT)), "has no name"),
        ("__index_level_0__", list(range(COUNT, 0, -1)), "is the index of pandas"),
        ("gone", [None] * COUNT, "is empty"),
        ("time", ["12:30:00", "12:45:00"] * 30, "holds values of the type time32"),
    ],
)
def test_columns_that_do_not_help_are_left_out(written, column, values, why):
    found = rows.read(written(with_x(**{column: values}, y=["a", "b"] * 30)))
    assert [one.name for one in found.columns] == ["x"]
    assert list(found.left_out) == [column]
    assert found.left_out[column].startswith(why)


@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1"])
def test_the_index_that_pandas_writes_to_a_csv_is_left_out(written, name):
    # The second is what it becomes when the file is read and written twice.
    order = np.random.default_rng(0).permutation(3 * COUNT)[:COUNT].tolist()
    found = rows.read(written(with_x(**{name: order}, y=["a", "b"] * 30)))
    assert found.left_out == {name: "is the index of pandas, which gives away the order of the rows"}
    for values in (numbers(seed=2), [-1, *order[1:]], [order[1], *order[1:]], [None, *order[1:]], ["a", "b"] * 30):
        assert rows.read(written(with_x(**{name: values}, y=["a", "b"] * 30))).left_out == {}


def test_nested_columns_are_left_out(written):
    columns = {"list": [[1, 2]] * COUNT, "bytes": [b"x", b"y"] * 30}
    found = rows.read(written(with_x(**columns, y=["a", "b"] * 30), ".parquet"))
    assert {name: why.partition(" of ")[0] for name, why in found.left_out.items()} == {
        "list": "holds values",
        "bytes": "holds values",
    }


def test_the_most_frequent_categories_are_kept(written):
    cities = [f"city {number}" for number in range(CATEGORIES) for _ in range(4)]
    rare = [f"town {number}" for number in range(20)]
    found = rows.read(written({"city": cities + rare, "y": numbers(420)}))
    (column,) = found.columns
    assert len(column.categories) == CATEGORIES
    assert set(column.categories) >= {"city 0", "city 99"} or "test" in found.splits
    assert (found.features[:, 0] == -1).sum() > 0
    assert any("city has 120 categories: the 100 most frequent are used" in note for note in found.notes)


def test_categories_are_those_of_the_training_rows(written):
    split = ["train"] * 30 + ["test"] * 30
    found = rows.read(written({"split": split, "city": ["a", "b"] * 15 + ["c"] * 30, "y": numbers()}))
    assert found.columns[0].categories == ("a", "b")
    assert (found.features[30:, 0] == -1).all()
    assert found.left_out == {"split": "names the splits"}
    assert found.splits == split


@pytest.mark.parametrize(
    ("column", "cells", "problem"),
    [
        ("split", ["Train", None], "row 2 of .*table.csv has no split"),
        ("Split", ["train", "tset"], "row 2 of .*table.csv names the split 'tset'"),
        ("split", ["training set", "test set"], "row 1 of .*table.csv names the split 'training set'"),
        ("fold", ["holdout", "test"], "row 1 of .*table.csv names the split 'holdout'"),
    ],
)
def test_a_mistake_in_a_split_is_refused(written, column, cells, problem):
    expected = f"{problem}. Expected train, validation or test. Correct it in the column {column}, or rename"
    with pytest.raises(UserError, match=expected):
        rows.read(written(with_x(**{column: cells * 30}, y=numbers())))
    # Rows without a target are left out, whatever their split; other columns named so are inputs.
    unknown = with_x(split=["train", "test"] * 29 + [None, None], y=[*numbers(58), None, None])
    assert rows.read(written(unknown)).splits == ["train", "test"] * 29
    assert rows.read(written(with_x(set=["a", "b"] * 30, y=numbers()))).columns[1].categories == ("a", "b")
    found = rows.read(written(with_x(Split=[0, 1] * 30, y=numbers())))
    assert found.notes == ("Split holds numbers, so it is an input: splits are named train, validation and test.",)


def test_columns_that_are_constant_in_the_training_rows_alone_are_named(written):
    found = rows.read(
        written(
            with_x(
                split=["train"] * 40 + ["test"] * 20,
                flag=[0] * 40 + [1] * 20,
                city=["a"] * 40 + ["b"] * 20,
                new=[None] * 40 + numbers(20),
                rare=[None] * 39 + [1] * 21,
                y=numbers(),
            )
        )
    )
    assert [one.name for one in found.columns] == ["x", "flag", "city", "new", "rare"]
    said = "is the same in every training row, so predictions ignore it."
    named = [f"{name} {said}" for name in ("flag", "city", "new")]
    assert [note for note in found.notes if "training row" in note] == named


def test_rows_without_a_target_are_left_out(written):
    found = rows.read(written(with_x(y=[None, "a", "b"] * 20)))
    assert len(found.truth) == len(found.features) == len(found.splits) == 40
    assert "rows without a y, which are left out: 20." in found.notes


@pytest.mark.parametrize("task", ["auto", "classification"])
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 80))
def test_rows_stay_in_their_split_when_others_are_added(tmp_path_factory, task, seed, more):
    path = tmp_path_factory.mktemp("table") / "houses.csv"
    target = "price" if task == "auto" else "verdict"
    lines = houses.write(path, 150 + more, seed).read_text().splitlines(keepends=True)
    later = rows.read(path, target)
    path.write_text("".join(lines[:151]))
    earlier = rows.read(path, target)
    moved = sum(one != other for one, other in zip(earlier.splits, later.splits, strict=False))
    # Only the lowest rows of a class may have been moved to a split that the class was missing.
    assert moved <= 2 * max(1, len(later.labels))


def test_equal_rows_and_groups_stay_together(written):
    columns = {"x": [number // 2 for number in range(200)], "y": [number // 2 % 7 + 0.5 for number in range(200)]}
    found = rows.read(written(columns))
    assert found.splits[::2] == found.splits[1::2]
    assert set(found.splits) == {"train", "validation", "test"}
    patients = {**columns, "x": numbers(200), "patient": [number // 4 for number in range(200)]}
    found = rows.read(written(patients), group="patient")
    assert all(len(set(found.splits[start : start + 4])) == 1 for start in range(0, 200, 4))
    assert "patient" in found.left_out


def test_splits_of_the_data_keep_groups_together(written):
    columns = with_x(
        split=["train"] * 160 + ["test"] * 40,
        patient=[number // 4 for number in range(200)],
        y=["a", "b"] * 100,
    )
    found = rows.read(written(columns), group="patient", validation=20)
    assert found.counts["validation"] == pytest.approx(20, abs=12)
    assert all(len(set(found.splits[start : start + 4])) == 1 for start in range(0, 200, 4))
    # Targets may be a time series.
    assert rows.read(written(columns | {"y": numbers(200)}), group="patient", validation=20).counts["validation"] == 0
    columns["split"][0] = "test"
    with pytest.raises(UserError, match=r"--group keeps a group in one split, and the data name two splits for 1: 0\."):
        rows.read(written(columns), group="patient")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"size": numbers(), "price": numbers()}, {}, r"which column of .* is to be predicted\? Name it with --target"),
        (with_x(price=numbers()), {"target": "prise"}, r"has no column 'prise'. Did you mean 'price'\? It has: x"),
        (with_x(y=numbers()), {"group": "z"}, "cannot be grouped: the column z is not there"),
        (with_x(y=numbers()), {"group": "y"}, "cannot be grouped: the column y is the target"),
        (with_x(y=["a"] * 60), {}, "all rows have the same y, a, so that there is nothing to predict"),
        (with_x(y=[3.5] * 60), {}, "all rows have the same y, 3.5"),
        (with_x(y=[f"name {number}" for number in range(60)]), {}, "y has a different value in nearly every row"),
        (with_x(y=[*"abcdefghi", *[None] * 20]), {}, "has 9 rows with a y. Expected at least 10"),
        (with_x(z=[1.0, "inf"] * 30, y=numbers()), {}, "the column 'z' of .* has the number inf in row 2"),
        (with_x(z=[1.0, 2.0, "1e39"] * 20, y=numbers()), {}, "number 1e.39 in row 3"),
        ({"x": [5] * 60, "y": numbers()}, {}, "no column to predict y from: x is the same in every row"),
        ({"y": numbers()}, {}, "no column to predict y from: there is no other column"),
        (with_x(y=[None] * 60), {}, "the target y of .* is empty. Name another column with --target"),
        (with_x(split=["test"] * 30 + ["train"] * 30, y=["a"] * 30 + ["b"] * 30), {}, "no training row has the y a"),
        (with_x(split=["test"] * 60, y=numbers()), {}, "there are no training rows"),
        (with_x(split=["train", "test"] * 30, y=[1, 2.5] * 30), {}, "all training rows have the same y"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(written, columns, options, message):
    with pytest.raises(UserError, match=message) as error:
        rows.read(written(columns), **options)
    assert "\n" not in str(error.value)


def test_tables_of_images_are_something_else(tmp_path, written):
    assert rows.matches(written(with_x(y=numbers())))
    assert rows.matches(written({"file": numbers(), "y": numbers()}))
    assert not rows.matches(written({"file": ["a.png"] * 3, "label": [1, 2, 3]}))
    assert not rows.matches(written({"image": [b"?"], "label": [1]}, ".parquet"))
    assert not rows.matches(shapes.write(tmp_path / "shapes", 1))
    assert not rows.matches(tmp_path / "nothing.csv")


def test_columns_are_described(tmp_path):
    found = rows.read(houses.write(tmp_path / "houses.csv"), "price")
    by_name = {one.name: one for one in found.surveyed}
    assert list(by_name) == ["area", "rooms", "built", "city", "garden", "verdict"]
    assert by_name["area"].kind == "number"
    assert 5 < by_name["area"].missing < 40
    assert (by_name["rooms"].missing, by_name["rooms"].values) == (0, "1 to 7")
    assert by_name["built"].kind == "days since 1970"
    assert by_name["city"].kind == "category"
    assert by_name["city"].values.startswith("3: ")
    assert set(found.left_out) == {"id", "country"}


TAGS = ["big;new", "new", "", "big"] * 15
FLAGS = {"big": [1, 0, 0, 1] * 15, "new": [1, 1, 0, 0] * 15}


@pytest.mark.parametrize(
    ("columns", "suffix", "options"),
    [
        ({"tags": TAGS}, ".csv", {"target": "tags", "separator": ";"}),
        ({"tags": TAGS}, ".parquet", {"target": "tags", "separator": ";"}),
        ({"tags": [tags.split(";") if tags else [] for tags in TAGS]}, ".parquet", {"target": "tags"}),
        (FLAGS, ".csv", {"target": "big,new"}),
        ({name: [bool(flag) for flag in flags] for name, flags in FLAGS.items()}, ".parquet", {"target": "big,new"}),
    ],
)
def test_rows_may_have_any_number_of_classes(written, columns, suffix, options):
    path = written(with_x(**columns), suffix)
    found = rows.read(path, **options)
    assert (found.labels, found.multi_label, [one.name for one in found.columns]) == (("big", "new"), True, ["x"])
    np.testing.assert_array_equal(found.truth, np.column_stack([*FLAGS.values()]))
    assert found.truth.dtype == np.uint8
    assert rows.class_counts(found.truth, 2).tolist() == [30, 30]
    assert "rows without a class: 15." in found.notes
    assert set(found.splits) == {"train", "validation", "test"}
    assert found.task == "classification, any number of classes for each row"
    # The same rows, read for a net that was trained on them.
    separator = options.pop("separator", None)
    again = new_rows.read(path, found.columns, found.target, found.labels, multi_label=True, separator=separator)
    np.testing.assert_array_equal(again.truth, found.truth)
    np.testing.assert_array_equal(again.values, found.features)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (with_x(a=[0, 2] * 30, b=[0, 1] * 30), {"target": "a,b"}, "the target a of .* must hold 0 or 1"),
        (with_x(a=[0, 1] * 30, b=[0, 1] * 30), {"target": "a,c"}, r"has no column 'c'"),
        (with_x(a=["p;q"] * 60), {"target": "a", "separator": ";", "task": "regression"}, "holds classes, and --task"),
        (with_x(a=["p"] * 60), {"target": "a", "separator": ";"}, "the target a names one class. Expected two"),
        (with_x(a=[f"n{one}" for one in range(60)]), {"target": "a", "separator": ";"}, "value in nearly every row"),
        (
            with_x(split=["test"] * 30 + ["train"] * 30, a=["p;q"] * 30 + ["q;r"] * 30),
            {"target": "a", "separator": ";"},
            "no training row has the a p",
        ),
    ],
)
def test_sets_of_classes_that_cannot_be_predicted_are_refused(written, columns, options, message):
    with pytest.raises(UserError, match=message):
        rows.read(written(columns), **options)


def test_dates_are_told_apart(written):
    days = [datetime.date(2020, 1, 1 + number % 28) for number in range(COUNT)]
    times = [datetime.datetime(2020, 1, 1 + number % 28, 6 * (number % 4)) for number in range(COUNT)]
    path = written(with_x(day=days, time=times, y=["a", "b"] * 30))
    found = rows.read(path)
    assert [(one.name, one.date) for one in found.columns] == [("x", None), ("day", "day"), ("time", "time")]
    assert found.features[1, 2] == found.features[1, 1] + 0.25
    record = DataRecord(
        name="t", version="1.0.0", shape=(3,), labels=("a", "b"), counts={}, columns=found.columns, target="y"
    )
    assert "date" not in record.model_dump()["columns"][0]
    # Texts in a column of dates are dates too.
    cells = {"x": numbers(2), "day": ["2020-01-02", None], "time": ["2020-01-01T06:00", "2020-01-01 12:00"]}
    cells["y"] = ["a", "b"]
    again = new_rows.read(written(cells, ".parquet"), found.columns, "y", record.labels)
    np.testing.assert_array_equal(again.values[:, 1:], [[18263, 18262.25], [np.nan, 18262.5]])
    assert again.truth.tolist() == [0, 1]
    with pytest.raises(UserError, match=r"row 1 of .*: day must be a date such as 2026-11-26\. Received: 'soon'"):
        new_rows.read(written(cells | {"day": ["soon", None]}, ".parquet"), found.columns, "y", record.labels)


def test_rows_in_two_splits_are_counted(written):
    splits = ["train"] * 40 + ["test"] * 20
    y, x = ["a", "b"] * 30, [*range(COUNT, 0, -1)]
    assert rows.read(written({"x": x, "y": y, "split": splits})).notes == ()
    # The last four are the first four again.
    x[-4:] = x[:4]
    found = rows.read(written({"x": x, "y": y, "split": splits}))
    assert found.notes == ("rows in two splits, which make scores too high: 4.",)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_texts_may_be_large_strings_or_views(written, kind):
    columns = {name: pa.array(texts * 30, kind) for name, texts in {"city": ["Rome", "Oslo"], "y": ["a", "b"]}.items()}
    found = rows.read(written(with_x(**columns), ".parquet"))
    assert (found.columns[1].categories, found.labels) == (("Oslo", "Rome"), ("a", "b"))


@pytest.mark.parametrize(("missing", "comma"), [("", ","), ("NA", ";")])
def test_classes_keep_their_leading_zeros(written, missing, comma):
    path = written(with_x(y=["00", "01", " 10", missing] * 15), comma=comma)
    found = rows.read(path)
    assert (found.labels, found.truth.tolist()) == (("00", "01", "10"), [0, 1, 2] * 15)
    again = new_rows.read(path, found.columns, "y", found.labels)
    np.testing.assert_array_equal(again.truth, [0, 1, 2, np.nan if comma == "," else -1] * 15)
    assert rows.read(path, task="regression").truth.tolist() == [0, 1, 10] * 15
    # Models of earlier versions lost them.
    np.testing.assert_array_equal(
        new_rows.read(path, found.columns, "y", ("0", "1", "10")).truth, [0, 1, 2, np.nan] * 15
    )

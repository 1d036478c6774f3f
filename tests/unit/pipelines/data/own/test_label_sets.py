"""Examples with any number of classes, in every form of table."""

import numpy as np
import pyarrow as pa
import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.label_sets import hot, is_list, of_rows, split, target_columns


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("cat|dog", ("cat", "dog")),
        (" dog | cat|dog||", ("dog", "cat")),
        ("cat", ("cat",)),
        ("", ()),
        (" | ", ()),
    ],
)
def test_a_cell_names_each_of_its_classes_once(cell, names):
    assert split(cell, "|") == names


@pytest.mark.parametrize(
    ("column", "separator", "expected"),
    [
        (["a;b", "", None, "b"], ";", [("a", "b"), (), (), ("b",)]),
        ([1, 12, None, 3], ";", [("1",), ("12",), (), ("3",)]),
        ([["a", "b"], [], None, ["b", None, "b"]], None, [("a", "b"), (), None, ("b",)]),
        ([[2], [0, 1], [], []], ";", [("2",), ("0", "1"), (), ()]),
        (["a;b", "", None, "b"], None, None),
        ([{"a": 1}] * 4, ";", None),
    ],
)
def test_cells_and_lists_become_sets(tmp_path, column, separator, expected):
    found = of_rows(pa.table({"tags": column}), "tags", separator, tmp_path / "a.parquet")
    assert (None if found is None else found.tolist()) == expected


def test_several_columns_are_a_class_each(tmp_path):
    content = pa.table({"a": [1, 0, 1, None], "b": [True, False, True, True], "c, d": [0.0, 1.0, 1.0, 0.0]})
    names = content.column_names
    assert target_columns("a, b", names) == ["a", "b"]
    assert target_columns("c, d", names) == ["c, d"]
    assert target_columns("a", names) == ["a"]
    found = of_rows(content, "a,b", None, tmp_path / "a.parquet")
    assert found.tolist() == [("a", "b"), (), ("a", "b"), None]
    with pytest.raises(UserError, match=r"the target b of .*a\.csv must hold 0 or 1, as one of several.*Received: 2\."):
        of_rows(pa.table({"a": [0, 1], "b": [0, 2]}), "a,b", None, tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"the column 'b' of .*a\.csv holds values of the type list<.*int64>\."):
        of_rows(pa.table({"a": [0, 1], "b": [[0], [1]]}), "a,b", None, tmp_path / "a.csv")
    found = of_rows(pa.table({"a": [0, 1], "b": [None, None]}), "a,b", None, tmp_path / "a.csv")
    assert found.tolist() == [None, None]


def test_sets_become_ones_and_zeros():
    found = hot([("dog", "cat"), (), ("bird",)], ("bird", "cat", "dog"))
    np.testing.assert_array_equal(found, [[0, 1, 1], [0, 0, 0], [1, 0, 0]])
    assert found.dtype == np.uint8


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.list_(pa.string()), True),
        (pa.large_list(pa.int64()), True),
        (pa.list_(pa.dictionary(pa.int32(), pa.string())), True),
        (pa.list_(pa.float32(), 3), False),
        (pa.string(), False),
    ],
)
def test_lists_of_names_or_numbers_are_classes(kind, expected):
    assert is_list(kind) == expected

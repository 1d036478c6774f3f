"""Rows of a table: the values that users give, and the numbers that a net takes."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.inputs import Column
from serving.rows import WARNINGS, category_index, check, days, decode, encode
from tests import table_model

COLUMNS = tuple(Column(**column) for column in table_model.COLUMNS)
HOUSES = SimpleNamespace(name="houses", columns=COLUMNS)
NAN = np.nan


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ({"rooms": 4, "age": 10.5, "city": "Rome"}, [4, 10.5, 1]),
        ([4, 10.5, "Rome"], [4, 10.5, 1]),
        ({"city": "Oslo"}, [NAN, NAN, 2]),
        ({"rooms": None, "age": True, "city": None}, [NAN, 1, -1]),
        ({}, [NAN, NAN, -1]),
    ],
)
def test_values_become_numbers(row, numbers):
    found = encode([row], HOUSES)
    np.testing.assert_array_equal(found.values, np.float32([numbers]))
    assert (found.values.dtype, found.warnings) == (np.float32, ())


def test_no_rows_have_the_width_of_the_table():
    assert encode([], HOUSES).values.shape == (0, 3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"room": 4}, r"row 2 has the column 'room'\. Model 'houses' takes rows of 3 columns: rooms, age, city\."),
        ({"rooms": "four"}, r"row 2: rooms must be a number or null\. Received: 'four'\."),
        ({"rooms": [4]}, "rooms must be a number or null"),
        ({"age": 1e39}, "row 2: age is too large for float32"),
        ({"city": ["Rome"]}, r"row 2: city must be a text or null\. Received: \['Rome'\]"),
        ([4, 10], "row 2 has 2 values"),
        ("Rome", r"row 2 must be an object with values by column, or a list of 3 values\. Received: 'Rome'"),
        ("x" * 1000, r"Received: 'x{59}\.\.\.\.$"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_row_and_column(row, said):
    with pytest.raises(RequestError, match=said):
        encode([{}, row], HOUSES)


def test_unknown_categories_are_missing_and_reported_once():
    found = encode([{"city": "Rome"}, {"city": "Bonn"}, {"city": "Bonn"}, {"city": 7}], HOUSES)
    assert found.values[:, 2].tolist() == [1, -1, -1, -1]
    assert found.warnings == (
        "city has no category 'Bonn', so it counts as missing (row 2 and 1 more).",
        "city has no category 7, so it counts as missing (row 4).",
    )
    many = encode([{"city": str(number)} for number in range(WARNINGS + 5)], HOUSES).warnings
    assert (len(many), many[-1]) == (WARNINGS + 1, "There are 5 more unknown categories.")


@pytest.mark.parametrize(
    ("value", "index"), [("3", 0), (3, 0), (3.0, 0), (3.5, None), (True, 1), (False, None), ("True", None), ("x", None)]
)
def test_numbers_stand_for_the_categories_that_read_like_them(value, index):
    assert category_index(value, {"3": 0, "true": 1}) == index


@pytest.mark.parametrize(
    ("value", "index"), [("True", 1), ("FALSE", 0), ("false", 0), (True, 1), ("yes", None), (1, None)]
)
def test_truth_values_may_be_in_any_case(value, index):
    assert category_index(value, {"false": 0, "true": 1}) == index


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "rooms": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
                "age": st.none() | st.integers(-(2**24), 2**24),
                "city": st.none() | st.sampled_from(COLUMNS[2].categories),
            }
        )
    )
)
def test_decoded_rows_are_those_that_were_encoded(rows):
    found = encode(rows, HOUSES).values
    np.testing.assert_array_equal(encode([decode(row, COLUMNS) for row in found], HOUSES).values, found)
    np.testing.assert_array_equal(check(found, HOUSES), found)
    for row, one in zip(found, rows, strict=True):
        assert decode(row, COLUMNS)["city"] == one["city"]


def test_the_largest_number_survives_its_short_form():
    largest = np.finfo(np.float32).max
    row = decode(np.float32([largest, -largest, 0]), COLUMNS)
    np.testing.assert_array_equal(encode([row], HOUSES).values[0, :2], [largest, -largest])


def test_decoded_numbers_are_short():
    assert decode(np.float32([5.1, NAN, -1]), COLUMNS) == {"rooms": 5.1, "age": None, "city": None}


def test_numbers_of_any_type_are_rows():
    found = check(np.array([[4, 10, NAN], [1, NAN, 2]]), HOUSES)
    np.testing.assert_array_equal(found, np.float32([[4, 10, -1], [1, NAN, 2]]))
    assert found.dtype == np.float32
    assert check(np.int64([[4, 10, 1]]), HOUSES).tolist() == [[4, 10, 1]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([1e300, 0, 0], "row 2: rooms is infinite, or too large for float32"),
        ([0, -np.inf, 0], "row 2: age is infinite"),
        ([0, 0, 3], r"row 2: city must be the index of one of 3 categories, or -1 if it is missing\. Received: 3\."),
        ([0, 0, -2], "must be the index"),
        ([0, 0, 0.5], r"Received: 0\.5"),
    ],
)
def test_numbers_that_no_row_has_are_refused(row, said):
    with pytest.raises(RequestError, match=said):
        check(np.array([[0, 0, 0], row]), HOUSES)


DATED = SimpleNamespace(
    name="houses",
    columns=(Column(name="day", categories=None, date="day"), Column(name="time", categories=None, date="time")),
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1970-01-02", 1),
        (" 1970-01-02T12:00 ", 1.5),
        ("1970-01-02 06:00:00", 1.25),
        ("1970-01-02T01:00+01:00", 1),
        ("1970-01-02T00:00:00Z", 1),
        ("1969-12-31", -1),
        ("2026-11-26", 20783),
        ("yesterday", None),
        ("2026-13-01", None),
        ("", None),
    ],
)
def test_dates_are_days_since_1970(text, number):
    assert days(text) == number


def test_dates_are_texts_or_numbers():
    found = encode([{"day": "2026-11-26", "time": "2026-11-26T12:00"}, [20783, 20783.5], {}], DATED).values
    np.testing.assert_array_equal(found, np.float32([[20783, 20783.5], [20783, 20783.5], [NAN, NAN]]))
    assert decode(found[0], DATED.columns) == {"day": "2026-11-26", "time": "2026-11-26T12:00:00"}
    assert decode(found[2], DATED.columns) == {"day": None, "time": None}
    with pytest.raises(RequestError, match=r"row 1: day must be a date such as 2026-11-26 or null\. Received: 'soon'"):
        encode([{"day": "soon"}], DATED)
    # In other columns, a date is a text.
    with pytest.raises(RequestError, match="rooms must be a number or null"):
        encode([{"rooms": "2026-11-26"}], HOUSES)


@given(st.lists(st.tuples(*[st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)] * 2)))
def test_decoded_dates_are_those_that_were_encoded(rows):
    found = encode(rows, DATED).values
    np.testing.assert_array_equal(encode([decode(row, DATED.columns) for row in found], DATED).values, found)

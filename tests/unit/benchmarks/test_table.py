import csv

import pytest

from benchmarks import table
from benchmarks.table import Row


def test_the_best_has_the_highest_median_of_speeds_and_the_lowest_of_times():
    values = {"a": [1.0, 9.0, 1.0], "b": [2.0, 2.0, 2.0]}
    assert table.best(values, higher=True) == "b"
    assert table.best(values, higher=False) == "a"


def test_ratios_are_taken_within_rounds_and_above_one_is_better():
    # A machine that is half as fast in the second round changes no ratio.
    assert table.ratios([4.0, 2.0], [2.0, 1.0], higher=True) == [2.0, 2.0]
    assert table.ratios([4.0, 8.0], [2.0, 4.0], higher=False) == [0.5, 0.5]


def test_ratios_count_the_rounds_in_which_both_ran():
    assert table.ratios([4.0, 2.0], [2.0], higher=True) == [2.0]


def test_the_spread_is_median_lowest_and_highest():
    assert table.spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_rows_are_written_with_four_digits(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    rows = [Row("dense", contestant="Keras, layer by layer", ours=True, depth=1000, median=1 / 3), Row("dense")]
    table.write(path, rows)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["contestant"] for row in read] == ["Keras, layer by layer", ""]
    assert (read[0]["ours"], read[0]["depth"], read[0]["ratio"]) == ("yes", "1000", "")
    assert float(read[0]["median"]) == pytest.approx(1 / 3, rel=1e-3)

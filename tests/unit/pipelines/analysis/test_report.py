"""The files of an analysis."""

import csv
from dataclasses import replace

import keras
import numpy as np

from pipelines.analysis import figures, report, storage
from tests.finished_run import finished
from tests.unit.pipelines.analysis.known_analysis import analysis, lesions


def written(tmp_path, found):
    run = finished(tmp_path / "run", keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    report.write(found, run, "best", tmp_path)
    return (tmp_path / "analysis.md").read_text()


def test_the_page_describes_every_array(tmp_path):
    statistics = replace(analysis().statistics, weights=np.full((2, 7), 6.0))
    found = analysis(statistics=statistics, unit_lesions=lesions([1.0] * 7, [0.9] * 7))
    page = written(tmp_path, found)
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert set(arrays) == set(storage.SHAPES)
        for name in arrays:
            assert f"| `{name}` |" in page
        np.testing.assert_allclose(arrays["class_means"], found.statistics.means, rtol=1e-6)
        np.testing.assert_array_equal(arrays["lesion_accuracy"], [0.5, 0.9, 0.9])


def test_the_table_has_a_row_for_each_layer(tmp_path):
    page = written(tmp_path, analysis())
    with (tmp_path / "layers.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["highway_01", "highway_02", "last"]
    assert [row["dead"] for row in rows] == ["1", "0", "0"]
    assert [row["bias"] for row in rows] == ["-2.0", "-2.25", "-2.33333"]
    assert "| 1 | highway_01 | 2 | -2 | -2 | 0.1 | 0.75 | 0 | 1 | 1.5 | 0.5 |" in page
    assert "12 examples of 24, evenly spaced" in page
    assert "best weights" in page


def test_small_gates_and_losses_keep_their_digits(tmp_path):
    known = analysis()
    statistics = replace(known.statistics, means=known.statistics.means / 1e6, left=known.statistics.left / 1e6)
    found = replace(known, statistics=statistics, lesions=lesions([1.25e-7, 1.0, 1.0]))
    page = written(tmp_path, found)
    with (tmp_path / "layers.csv").open() as lines:
        row = next(csv.DictReader(lines))
    assert [float(row[name]) for name in ("mean_T", "share_below_0.1", "lesion_loss")] == [1e-7, 7.5e-7, 1.25e-7]
    assert "| 1 | highway_01 | 2 | -2 | -2 | 1e-07 | 7.5e-07 | 0 | 1 | 1.25e-07 |" in page
    assert "2.57e-07 on average" in page


def test_the_page_shows_the_costliest_of_many_layers():
    rows = [{"layer": number, "lesion_loss": float(number % 70)} for number in range(1, 101)]
    shown = report._chosen(rows)
    assert len(shown) == report.SHOWN
    assert [row["layer"] for row in shown] == sorted(row["layer"] for row in shown)
    hidden = [row["lesion_loss"] for row in rows if row not in shown]
    assert max(hidden) <= min(row["lesion_loss"] for row in shown)


def test_the_two_most_different_of_many_classes_are_drawn():
    found = analysis()
    means = np.full((12, 7), 0.2)
    means[3], means[8] = 0.9, 0.0
    statistics = replace(found.statistics, means=means, counts=np.full(12, 5))
    assert figures.drawn_classes(statistics, tuple("abcdefghijkl")) == {3: "d", 8: "i"}
    assert figures.drawn_classes(found.statistics, ("cat", "dog")) == {0: "cat", 1: "dog"}

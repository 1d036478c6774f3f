"""Runs next to those that the study in NumPy recorded, each on its own images."""

import dataclasses
import math

import pytest

from pipelines.studies.framework.results import Results
from pipelines.studies.papers.depth_contrast import STUDY
from pipelines.studies.shared import numpy_study
from tests.unit.pipelines.studies.fake import depth_results, evaluated


def runs(path, seeds):
    return depth_results(STUDY, path, lambda kind, _: 0.9 if kind == "highway" else 0.11, lambda *_: 0.2, seeds)


def spread(results, scores):
    """Returns the same runs, where those of a net on the same images have these accuracies in turn."""
    changed = [dataclasses.replace(one, evaluation=evaluated(scores[one.seed // 3])) for one in results.all]
    return Results(changed)


def means(results):
    """Returns the row of means of the highway nets: ours, and the source's."""
    return numpy_study.comparison_table(results).rows[-1][2:4]


def test_each_run_of_the_source_is_next_to_ours_on_its_images(tmp_path):
    rows = {row[:2]: row[2:] for row in numpy_study.comparison_table(runs(tmp_path, seeds=4)).rows}
    assert list(rows) == [
        ("5", "0"), ("10", "0"), ("20", "0"), ("30", "0"), ("30", "1"), ("30", "2"), ("50", "0"), ("mean", ""),
    ]  # fmt: skip
    assert rows["30", "0"][:2] == ("90.00 (90.00 ± 0.00, n = 2)", "92.60")
    assert rows["30", "1"] == ("90.00 (n = 1)", "90.40", "11.00 (n = 1)", "11.90")


def test_no_mean_if_a_run_of_the_source_has_no_counterpart(tmp_path):
    results = runs(tmp_path, seeds=3)
    assert means(runs(tmp_path / "two", seeds=2)) == ("-", "90.77")
    some = [one for one in results.all if (one.arm, one.seed) != ("highway-50", 0)]
    assert means(Results(some)) == ("-", "90.77")


def test_the_mean_has_its_difference_from_the_source(tmp_path):
    assert means(runs(tmp_path, seeds=3)) == ("90.00 (-0.77)", "90.77")
    # The fourth seed is a second run on the images of the first; all runs are alike, so the error is 0.
    assert means(runs(tmp_path / "four", seeds=4)) == ("90.00 (-0.77 ± 0.00)", "90.77")


def test_the_mean_counts_the_runs_that_diverged(tmp_path):
    lost = {("highway-5", 0), ("highway-10", 3), ("plain-5", 0)}
    results = runs(tmp_path, seeds=4).all
    changed = [dataclasses.replace(one, evaluation=None) if (one.arm, one.seed) in lost else one for one in results]
    assert means(Results(changed)) == ("90.00 (-0.77 ± 0.00, 2 more diverged)", "90.77")


def test_the_difference_has_the_standard_error_of_groups_of_runs_and_a_run_each(tmp_path):
    # Twelve seeds make four runs on the images of each draw.
    results = spread(runs(tmp_path, seeds=12), [0.89, 0.90, 0.91, 0.92])
    deviation = math.sqrt(sum(x * x for x in (1.5, 0.5, 0.5, 1.5)) / 3)
    error = deviation * math.sqrt((1 + 1 / 4) / 7)
    difference = 90.5 - (90.3 + 91.3 + 91.0 + 92.6 + 90.4 + 89.3 + 90.5) / 7
    assert means(results)[0] == f"90.50 ({difference:+.2f} ± {error:.2f})"


@pytest.mark.parametrize(("kind", "blocks"), numpy_study.ACCURACIES)
def test_each_net_has_what_the_source_recorded(kind, blocks):
    known = STUDY.arms[numpy_study.arm(kind, blocks)].published
    assert known.count == len(numpy_study.ACCURACIES[kind, blocks])
    assert known.loss == numpy_study.LOSSES[kind][blocks]

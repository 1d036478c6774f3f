import statistics

from pipelines.studies.framework.study import Published
from pipelines.studies.framework.tables import MEAN, SPREAD, mean, measured, score_format, spread


def test_best_mean_and_deviation():
    assert measured([0.926, 0.904, 0.893], 3) == "92.60 (90.77 ± 1.68, n = 3)"
    assert measured([0.9], 1) == "90.00 (n = 1)"


def test_runs_that_diverged_are_counted():
    assert measured([0.9, 0.8], 3) == "90.00 (85.00 ± 7.07, n = 2, 1 more diverged)"
    assert measured([], 3) == "diverged (n = 3)"
    assert measured([], 0) == "-"


def test_a_source_is_shown_with_what_it_reports():
    assert spread(0.924, 0.9231, 0.0012, None) == "92.40 (92.31 ± 0.12)"
    assert spread(0.8918, None, None, None) == "89.18"
    assert spread(None, 0.5, None, 2) == "(50.00, n = 2)"
    assert spread(None, None, None, None) == "-"


def test_a_source_that_names_its_runs():
    known = Published.of(0.926, 0.904, 0.893, loss=0.189)
    assert (known.best, known.count, known.loss) == (0.926, 3, 0.189)
    assert known.std == statistics.stdev([0.926, 0.904, 0.893])
    assert (Published.of(0.9).mean, Published.of(0.9).std) == (None, None)


def test_a_mean_says_how_many_runs_it_leaves_out():
    assert mean([0.1, 0.2], 2) == "0.150"
    assert mean([0.1, 0.2], 3) == "0.150 (n = 2, 1 more diverged)"
    assert mean([], 3) == "diverged (n = 3)"
    assert mean([], 0) == "-"


def test_without_the_best_a_single_run_is_still_shown():
    assert measured([0.9, 0.8], 3, best=False) == "(85.00 ± 7.07, n = 2, 1 more diverged)"
    assert measured([0.9], 2, best=False) == "90.00 (n = 1, 1 more diverged)"


def test_a_note_names_a_spread_only_if_a_cell_has_one():
    single, several = measured([0.9], 1), measured([0.9, 0.8], 2)
    assert score_format([("net", single)]) == "one run each (n = 1)"
    assert score_format([("net", single), ("other", several)]) == SPREAD
    assert score_format([("net", several)], MEAN) == MEAN

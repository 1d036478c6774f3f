"""The factor study: its arms, and its tables and captions for made-up results."""

import dataclasses

import numpy as np
import pytest

from pipelines.core import run
from pipelines.core.frozen import flat
from pipelines.core.run import MEASURED
from pipelines.data import french_factors
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.papers.factors import forecasts, study
from pipelines.studies.papers.factors.findings import findings
from pipelines.studies.papers.factors.study import STUDY
from pipelines.studies.papers.factors.walk_forward import FOLDS, TESTED, walk_forward
from pipelines.training.evaluation import measure_regression as measure
from tests.unit.pipelines.studies.fake import RECORD

MARKET = french_factors.read()[:, 0].astype(float)
VOLATILITY = np.nan_to_num(forecasts.volatility(MARKET, 12), nan=5.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(forecasts, "REPEATS", 50)
    monkeypatch.setattr(forecasts, "PENALTIES", (1.0,))
    monkeypatch.setattr(forecasts, "FOLDS", 2)


def asked(task):
    return np.abs(MARKET) if task == "size" else MARKET


def noise(seed, count):
    return np.random.default_rng(seed).normal(size=count)


def nothing(task, kind, tests, seed):
    """Returns forecasts without information: the mean so far, plus a little noise."""
    months = range(tests.start + 1, tests.stop + 1)
    return forecasts.mean_so_far(asked(task), months) + 0.01 * noise(seed, len(tests))


def much(task, kind, tests, seed):
    """Returns forecasts that know part of the outcome if they are those of a highway net, otherwise `nothing`."""
    guessed = nothing(task, kind, tests, seed)
    known = asked(task)[tests.start + 1 : tests.stop + 1] if kind == "highway" else guessed
    return guessed + 0.3 * (known - guessed)


def made(path, *, forecast=nothing, slope=0.01, before=0.0, seeds=2, diverged=()):
    """Returns results with gates that follow volatility with a slope after training, and another before it."""
    results = []
    for name, arm in STUDY.arms.items():
        task, kind, decade = name.split("-")
        tests = FOLDS[decade]["test"]
        for seed in range(seeds):
            one = run.Run(path / f"{name}-{seed}", arm.config, RECORD)
            one.path.mkdir(parents=True)
            arrays = {"forecast": forecast(task, kind, tests, seed)}
            if kind == "highway":
                for state, part in (("gates", slope), ("untrained", before)):
                    flicker = 0.001 * noise(seed, tests.stop)
                    # Nets of other decades have other levels.
                    level = 0.2 + int(decade[2]) / 100
                    arrays[state] = (level + part * VOLATILITY[: tests.stop] + flicker)[:, None].repeat(4, axis=1)
            np.savez(one.path / MEASURED, **arrays)
            targets = asked(task)[tests.start + 1 : tests.stop + 1]
            score = measure(arrays["forecast"], targets, asked(task)[: tests.start].mean(), "best", "fama_french")
            results.append(Result(name, seed, one, (), None if (name, seed) in diverged else score))
    return Results(results)


def test_the_twins_are_of_equal_size():
    import highway_keras

    def parameters(kind):
        model = STUDY.arms[f"return-{kind}-1940s"].config.model
        settings = model.model_dump(exclude={"preset"}, exclude_none=True)
        return highway_keras.from_preset(model.preset, input_shape=(4,), **settings).count_params()

    highway = parameters("highway")
    assert highway == 5 * 128 + 4 * 2 * 129 * 128 + 129
    for kind in ("plain", "residual"):
        assert parameters(kind) == pytest.approx(highway, rel=0.01)


def test_arms_of_a_task_differ_in_net_and_fold_alone():
    for task in ("return", "size"):
        arms = {name: flat(arm.config) for name, arm in STUDY.arms.items() if name.startswith(task)}
        first = next(iter(arms.values()))
        differs = {field for values in arms.values() for field in values if values[field] != first[field]}
        assert differs == {"recipe", "model.preset", "model.match", "data"}


def test_folds_are_concatenated(tmp_path):
    def placed(task, kind, tests, seed):
        return np.arange(tests.start, tests.stop) + 10_000.0 * seed

    series = walk_forward(made(tmp_path, forecast=placed), "return")
    np.testing.assert_array_equal(series.forecasts["plain"], np.add.outer([0, 10_000], np.arange(161, 1108)))
    np.testing.assert_array_equal(series.targets, MARKET[162:])
    assert series.means[0] == pytest.approx(MARKET[:162].mean())
    assert series.means[-1] == pytest.approx(MARKET[:1108].mean())
    constant = series.forecasts["mean before the decade"][0]
    assert constant[0] == constant[119] == pytest.approx(MARKET[:162].mean())
    assert constant[120] == pytest.approx(MARKET[:282].mean())


def test_gates_are_relative_to_their_mean_before_the_decade(tmp_path):
    series = walk_forward(made(tmp_path, slope=0.01), "return")
    first = VOLATILITY[:161].mean()
    np.testing.assert_allclose(series.opened[0][:120], 0.01 * (VOLATILITY[161:281] - first), atol=0.006)
    assert series.levels[:, 0] == pytest.approx(0.2 + np.array([4, 5, 6, 7, 8, 9, 0, 1]) / 100, abs=0.001)


def test_forecasts_without_information_are_not_called_better(tmp_path):
    shown = findings(made(tmp_path), "return")
    assert abs(shown.r2["highway"].value) < 0.001
    assert all(known.sign < 1 for known in shown.r2.values())


def test_the_mean_of_sizes_wins_where_nets_know_nothing(tmp_path):
    shown = findings(made(tmp_path), "size")
    recent, smoothed = shown.r2["mean of the last 12 sizes"], shown.r2["exponential mean of sizes (0.9)"]
    assert (recent.value, smoothed.value) == pytest.approx((0.1708, 0.1892), abs=1e-4)
    assert shown.lead["mean of the last 12 sizes"].sign == -1


def test_forecasts_with_information_lead(tmp_path):
    results = made(tmp_path, forecast=much)
    for task in ("return", "size"):
        shown = findings(results, task)
        assert shown.r2["highway"].sign == 1
        assert shown.lead["plain"].sign == 1
        table = next(each for each in study.make_tables(results) if study.ASKED[task] in each.title)
        cells = dict(zip(table.head, table.rows[0], strict=True))
        assert cells["forecast"] == "highway"
        assert cells["p (Clark-West)"] == "0.000"


@pytest.mark.parametrize(
    ("slope", "before", "trained", "learned"),
    [(0.01, 0.0, 1, 1), (-0.01, 0.0, -1, -1), (0.0, 0.01, 0, -1), (0.01, 0.01, 1, 0)],
)
def test_what_training_does_to_the_gates(tmp_path, slope, before, trained, learned):
    results = made(tmp_path, slope=slope, before=before)
    shown = findings(results, "return")
    assert (shown.trained.sign, shown.learned.sign) == (trained, learned)
    gates = next(each for each in study.make_tables(results) if each.title.startswith("Gates"))
    assert [row[-1] for row in gates.rows[-3:]] == [shown.trained.text, shown.learned.text, shown.moved.text]


def test_the_change_between_quiet_and_wild_months(tmp_path):
    shown = findings(made(tmp_path, slope=0.01), "size")
    quiet, wild = (part.mean() for part in np.array_split(np.sort(VOLATILITY[TESTED]), 5)[::4])
    change = shown.fifths.mean(axis=0)[-1] - shown.fifths.mean(axis=0)[0]
    # Each decade has its own months before it, whose mean gate is subtracted.
    assert change == pytest.approx(0.01 * (wild - quiet), rel=0.5)


def test_all_tables_and_figures_are_made(tmp_path):
    results = made(tmp_path)
    tables = study.make_tables(results)
    assert len(tables) == 6
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    assert [row[:2] for row in tables[1].rows] == [(decade, f"{len(fold['test'])}") for decade, fold in FOLDS.items()]
    figures = Figures(tmp_path / "figures", "short schedule, budget 0.1: 1 of 3 seeds")
    STUDY.draw(results, figures)
    names = ("gains", "gates_over_time", "gates_by_volatility")
    assert [figure.file for figure in figures.files] == [
        f"{name}_{task}.png" for task in ("return", "size") for name in names
    ]


def test_a_seed_that_diverged_in_one_fold_is_left_out_of_all(tmp_path):
    series = walk_forward(made(tmp_path, seeds=3, diverged={("return-highway-1960s", 1)}), "return")
    assert {name: len(runs) for name, runs in series.forecasts.items()} == {
        "highway": 2, "plain": 3, "residual": 3, "ridge": 1, "ridge with sizes": 1, "mean before the decade": 1
    }  # fmt: skip
    assert len(series.opened) == 2


def test_a_task_without_runs_is_not_shown(tmp_path):
    results = made(tmp_path, diverged={("return-plain-1960s", 0), ("return-plain-1990s", 1)})
    assert walk_forward(results, "return") is None
    assert {"size" in table.title for table in study.make_tables(results)} == {True}


def test_one_seed_has_no_spread(tmp_path):
    table = study.make_tables(made(tmp_path, seeds=1))[0]
    assert {row[1] for row in table.rows} == {""}


def test_a_row_of_results_has_r2_and_no_accuracy(tmp_path):
    from pipelines.studies.run import page

    results = made(tmp_path)
    head, first, *_ = page.table(results.rows(tmp_path), "").splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    assert cells["test_accuracy"] == ""
    assert float(cells["test_r2"]) == pytest.approx(results.all[0].r2, rel=1e-4)
    assert float(cells["test_loss"]) == pytest.approx(results.all[0].evaluation.rmse ** 2, rel=1e-4)
    assert dataclasses.replace(results.all[0], evaluation=None).r2 is None

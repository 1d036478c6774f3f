"""The factor model on real months: forecasts against simple baselines, gates against volatility.

Command     highway reproduce factors
Net         one plain and four highway layers of 128 relu units, gate bias -1, one output; plain and residual twins
            with as many parameters
Data        fama_french: the four US factors, monthly, July 1926 to November 2018. Eight folds: each forecasts a decade
            from all months before it, the last fifth of which choose the epoch
Published   none: the article describes the net and says that its gates close in calm and open in complex regimes
Sources     the net is the article's; data, folds and training are ours. No training setting was chosen by results on
            any month: Adam with Keras's default rate, 30 epochs, batch and scaling of the recipe `factor`
Measured    docs/results/factors
"""

import numpy as np

from pipelines import recipes
from pipelines.core.config import Config
from pipelines.data.french_factors import SIZE
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers.factors.figures import by_volatility, gains, over_time
from pipelines.studies.papers.factors.findings import YEAR, Findings, findings
from pipelines.studies.papers.factors.forecasts import clark_west, r2
from pipelines.studies.papers.factors.walk_forward import FOLDS, KINDS, TESTED, TESTS, WEIGHTS, arm, measured
from pipelines.studies.shared.correlation import rank_correlation

ASKED = {"return": "next month's market return", "size": "the size of next month's market return"}
CHANGED = ("model.match", "optimizer.learning_rate", "epochs", "precision")
"""Fields that differ from the recipe's, besides the data."""


def make_tables(results: Results) -> list[Table]:
    """Tabulates, for each task, the forecasts over all months and by decade, and the gates."""
    return [table(task, shown) for task, shown in _known(results) for table in (_forecasts, _decades, _gates)]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws, for each task, gains over time, gates and volatility over time, and gates by volatility."""
    for task, shown in _known(results):
        gains(figures, shown, task, ASKED[task])
        over_time(figures, shown, task, ASKED[task])
        by_volatility(figures, shown, task, ASKED[task])


def _known(results: Results) -> list[tuple[str, Findings]]:
    """Returns the tasks with enough finished runs."""
    return [(task, shown) for task in KINDS if (shown := findings(results, task))]


def _forecasts(task: str, shown: Findings) -> Table:
    series = shown.walk_forward
    rows = []
    for name, runs in series.forecasts.items():
        each = [100 * r2(np.square(series.targets - one), series.reference) for one in runs]
        spread = f"{np.mean(each):+.2f} ± {np.std(each, ddof=1):.2f} (n = {len(each)})" if len(each) > 1 else ""
        p = clark_west(series.targets, runs.mean(axis=0), series.means)
        lead = shown.lead[name].percent if name in shown.lead else ""
        rows.append((name, spread, shown.r2[name].percent, f"{p:.3f}", lead))
    spreads = "Mean ± standard deviation over seeds; in" if any(row[1] for row in rows) else "In"
    return Table(
        f"Forecasts of {ASKED[task]}, {len(TESTED)} months from 1940 on",
        ("forecast", "R² of a run, %", "R² of the mean forecast", "p (Clark-West)", "highway's R² minus this"),
        tuple(rows),
        "out-of-sample R² against the mean of all earlier months: 0 is as good as that mean, a negative value is "
        f"worse. {spreads} brackets 95% intervals over months, by the stationary bootstrap; p is one-sided; its null "
        "hypothesis is a forecast without more information than that mean. Ridge regression chooses its penalty by "
        "five splits in time of the months before a decade and learns from all of them; means of sizes use every "
        "month up to the forecast",
    )


def _decades(task: str, shown: Findings) -> Table:
    series = shown.walk_forward
    errors = {name: series.errors(name) for name in series.forecasts}
    rows = []
    for name, part in _parts():
        scores = (f"{100 * r2(error[part], series.reference[part]):+.2f}" for error in errors.values())
        rows.append((name, f"{part.stop - part.start}", *scores))
    return Table(f"R² of the mean forecast by decade, {ASKED[task]}, %", ("decade", "months", *errors), tuple(rows))


def _gates(task: str, shown: Findings) -> Table:
    series = shown.walk_forward
    opened, untrained = series.opened.mean(axis=0), series.untrained.mean(axis=0)
    seeds = ", and over seeds" if len(series.opened) > 1 else ""
    rows = [
        (
            name,
            *(f"{level:.3f}" for level in levels),
            *(f"{rank_correlation(gates[part], shown.volatility[part]):+.2f}" for gates in (untrained, opened)),
        )
        for (name, part), levels in zip(_parts(), series.levels, strict=True)
    ]
    rows += [
        ("all", "", "", shown.untrained.text, shown.trained.text),
        ("all, change by training", "", "", "", shown.learned.text),
        ("all, with the size of the last return instead", "", "", "", shown.moved.text),
    ]
    return Table(
        f"Gates of the highway nets and volatility, {ASKED[task]}",
        ("decade", "mean T untrained", "mean T", "with volatility, untrained", "with volatility"),
        tuple(rows),
        f"rank correlation of the mean gate in a month (over layers and units{seeds}) with the standard deviation of "
        f"the market's last {YEAR} returns; over all months, of the mean gate minus its mean before the decade, with "
        "95% intervals",
    )


def _parts() -> list[tuple[str, slice]]:
    """Returns the decades and their places among the forecast months."""
    first = TESTED.start
    return [(name, slice(t.start - first, t.stop - first)) for name, t in zip(FOLDS, TESTS, strict=True)]


def _arm(task: str, kind: str, decade: str) -> Arm:
    recipe = recipes.get("factor" if kind == "highway" else f"factor_{kind}")
    fold = FOLDS[decade]
    fields = recipe.config.model_dump()
    fields["model"]["match"] = None if kind == "highway" else "parameters"
    fields["optimizer"]["learning_rate"] = 0.001
    fields |= {"data": f"fama_french/{decade}{SIZE if task == 'size' else ''}", "epochs": 30, "precision": "float32"}
    tags = recipe.provenance
    assumed = dict.fromkeys((*tags.assumed, *CHANGED))
    if kind == "highway":
        del assumed["model.match"]
    return Arm(
        config=Config.model_validate(fields),
        provenance=tags.model_copy(update={"assumed": tuple(assumed)}),
        data=Counts(train=len(fold["train"]), test=len(fold["test"]), drawn=False),
    )


STUDY = Study(
    name="factors",
    title="The factor model on real months",
    source="the finance section of the article, which has no numbers",
    asks="does a highway net forecast the market, and do its gates open in wild months and close in calm ones?",
    arms={
        arm(task, kind, decade): _arm(task, kind, decade)
        for task, kinds in KINDS.items()
        for kind in kinds
        for decade in FOLDS
    },
    seeds=3,
    differs=(
        "The article names no data, no horizon and no training. Here the four factors of a month forecast the market "
        "a month ahead.",
        "The absolute size of the return is a second target: it is known to be forecastable to some degree, which "
        "separates a net that cannot learn from a target that cannot be forecast.",
        "The article does not define calm and complex regimes; here they are measured by volatility, the standard "
        f"deviation of the market's last {YEAR} monthly returns.",
        "A net does not learn from the months that choose its epoch; ridge regression learns from all months before a "
        "decade.",
    ),
    tables=make_tables,
    draw=draw_figures,
    measure=measured,
    weights=WEIGHTS,
)

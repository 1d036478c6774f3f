"""The factor model walks forward through real months: its forecasts against simpler ones, its gates against volatility.

Command     highway reproduce factors
Net         one plain and four highway layers of 128 relu units, gate bias -1, one output; plain and residual twins of
            as many parameters
Data        fama_french: the four US factors of a month, July 1926 to November 2018. Eight folds: each learns from all
            months before a decade, of which the last fifth chooses the epoch, and forecasts the months of the decade
Published   none: the article describes the net, and says that its gates are closed in calm and open in complex regimes
Sources     the net is the article's; data, folds and training are ours. No number of the training was chosen by any
            month: Adam with Keras's own rate, 30 epochs, batch and scaling of the recipe `factor`
Measured    seeds 0 to 2, mean forecasts: out-of-sample R^2 of the return -0.6 %, of its size 12.7 %, plain nets -0.6
            and 10.0 % (docs/results/factors); JAX 0.10.2, float32, an Intel Xeon with avx512_bf16 and amx_bf16
"""

import numpy as np

from pipelines import recipes
from pipelines.core.config import Config
from pipelines.core.statistics import rank_correlation
from pipelines.data.french_factors import SIZE
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers.factors.figures import by_volatility, gains, over_time
from pipelines.studies.papers.factors.findings import YEAR, Findings, found
from pipelines.studies.papers.factors.forecasts import clark_west, r2
from pipelines.studies.papers.factors.walk_forward import FOLDS, KINDS, TESTED, TESTS, WEIGHTS, arm, measured

ASKED = {"return": "next month's market return", "size": "the size of next month's market return"}
CHANGED = ("model.match", "optimizer.learning_rate", "epochs", "precision")
"""What is not the recipe's, besides the data."""


def tabulated(results: Results) -> list[Table]:
    """For each task the forecasts over all months and by decade, and the gates."""
    return [table(task, shown) for task, shown in _known(results) for table in (_forecasts, _decades, _gates)]


def drawn(results: Results, figures: Figures) -> None:
    """For each task what forecasts gain over time, gates and volatility over time, and gates by volatility."""
    for task, shown in _known(results):
        gains(figures, shown, task, ASKED[task])
        over_time(figures, shown, task, ASKED[task])
        by_volatility(figures, shown, task, ASKED[task])


def _known(results: Results) -> list[tuple[str, Findings]]:
    """The tasks of which enough runs came to their end."""
    return [(task, shown) for task in KINDS if (shown := found(results, task))]


def _forecasts(task: str, shown: Findings) -> Table:
    walk = shown.walk
    rows = []
    for name, runs in walk.forecasts.items():
        each = [100 * r2(np.square(walk.targets - one), walk.least) for one in runs]
        spread = f"{np.mean(each):+.2f} +- {np.std(each, ddof=1):.2f} (n = {len(each)})" if len(each) > 1 else ""
        p = clark_west(walk.targets, runs.mean(axis=0), walk.means)
        lead = shown.lead[name].percent if name in shown.lead else ""
        rows.append((name, spread, shown.r2[name].percent, f"{p:.3f}", lead))
    return Table(
        f"Forecasts of {ASKED[task]}, {len(TESTED)} months from 1940 on",
        ("forecast", "R^2 of a run, %", "R^2 of the runs' mean, %", "p (Clark-West)", "highway's R^2 less it"),
        tuple(rows),
        "R^2 out of sample, against the mean of all months before the one forecast: 0 is as good as that mean, below 0 "
        "worse. Mean +- standard deviation over seeds; in brackets 95 % intervals over months, by the stationary "
        "bootstrap; p one-sided, for knowing no more than that mean. Ridge regression chooses its penalty by five "
        "splits in time of the months before a decade, and learns from all of them",
    )


def _decades(task: str, shown: Findings) -> Table:
    walk = shown.walk
    errors = {name: walk.errors(name) for name in walk.forecasts}
    rows = []
    for name, part in _parts():
        scores = (f"{100 * r2(error[part], walk.least[part]):+.2f}" for error in errors.values())
        rows.append((name, f"{part.stop - part.start}", *scores))
    return Table(
        f"The same by decade: R^2 of the runs' mean, {ASKED[task]}, %", ("tested", "months", *errors), tuple(rows)
    )


def _gates(task: str, shown: Findings) -> Table:
    walk = shown.walk
    opened, untrained = walk.opened.mean(axis=0), walk.untrained.mean(axis=0)
    rows = [
        (
            name,
            *(f"{level:.3f}" for level in levels),
            *(f"{rank_correlation(gates[part], shown.volatility[part]):+.2f}" for gates in (untrained, opened)),
        )
        for (name, part), levels in zip(_parts(), walk.levels, strict=True)
    ]
    rows += [
        ("all", "", "", shown.untrained.told, shown.trained.told),
        ("all, change by training", "", "", "", shown.learned.told),
        ("all, with the size of the last return instead", "", "", "", shown.moved.told),
    ]
    return Table(
        f"Gates of the highway nets and volatility, {ASKED[task]}",
        ("tested", "mean T untrained", "mean T", "with volatility, untrained", "with volatility"),
        tuple(rows),
        f"rank correlation of the mean gate in a month, over layers, units and seeds, with the standard deviation of "
        f"the market's last {YEAR} returns up to that month; over all months of the mean gate less its mean over the "
        "months before the decade, with 95 % intervals",
    )


def _parts() -> list[tuple[str, slice]]:
    """The decades, and their places among the months that are forecast."""
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
        "The article names no data, no horizon and no training. Here it is the market a month ahead, from the four "
        "factors of the month.",
        "The size of the return, without its sign, is asked for as well: it is known to be foreseeable a little, so "
        "that a net which forecasts nothing else can be told from one that does not learn.",
        "Calm and complex regimes are not defined in the article; volatility, the standard deviation of the market's "
        f"last {YEAR} monthly returns, stands for them.",
        "The months that choose the epoch of a net are not learned from; ridge regression learns from all months "
        "before a decade.",
    ),
    tables=tabulated,
    draw=drawn,
    measure=measured,
    weights=WEIGHTS,
)

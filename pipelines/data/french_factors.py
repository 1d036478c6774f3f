"""The monthly Fama-French factors of the package `arch`, and their splits in time. Imports no framework.

Example `i` has the factors of month `i` as features and the market's return in month `i + 1` as its target. Splits go
by the month of the target, so that a fold trains only on data known before its first forecast.
"""

import itertools

import numpy as np

from pipelines.core.errors import UserError

FACTORS = ("Mkt-RF", "SMB", "HML", "RF")
MARKET = FACTORS.index("Mkt-RF")
MONTHS = np.array([100 * year + month for year in range(1926, 2019) for month in range(1, 13)][6:-1])
"""The months of the series, July 1926 to November 2018, as YYYYMM."""
EXAMPLES = len(MONTHS) - 1
"""Number of examples; the last month has no target."""
# Shares of the examples, in chronological order; the shares are our choice.
PERCENT = {"train": 70, "validation": 15, "test": 15}
DECADES = {f"{year}s": year for year in range(1940, 2020, 10)}
"""First year of the test split of each walk-forward fold, by name of the fold."""
SIZE = "_size"
"""Suffix of the configurations whose targets are absolute returns."""
HELD_BACK = 5
"""Divisor for the validation split: the last fifth of the examples before a decade. The share is our choice."""


def read() -> np.ndarray:
    """Reads the factors of `MONTHS`, in percent, in the order of `FACTORS`: float32 [1109, 4].

    Raises:
        UserError: the package has other months.

    Example:
        read()[:, MARKET].mean()  # 0.66% a month above the risk-free rate
    """
    # Imported here, because this loads pandas and statsmodels.
    from arch.data import frenchdata

    table = frenchdata.load()
    # The index has YYYYMM stored as nanoseconds since 1970.
    months = table.index.as_unit("ns").asi8
    if not np.array_equal(months, MONTHS):
        raise UserError(
            f"the package arch has the factors of {len(months)} months from {months[0]} to {months[-1]}. Expected "
            f"{len(MONTHS)} from {MONTHS[0]} to {MONTHS[-1]}: install a version of arch that has them, such as 8.0."
        )
    return table[list(FACTORS)].to_numpy(np.float32)


def shares() -> dict[str, range]:
    """Splits all examples chronologically into training, validation and test, and returns their indices.

    Example:
        shares()["test"]  # range(941, 1108)
    """
    return _split([EXAMPLES * percent // 100 for percent in itertools.accumulate(PERCENT.values())])


def fold(decade: str) -> dict[str, range]:
    """Splits the examples for a decade: earlier ones serve for training and validation, later ones are unused.

    Args:
        decade: one of `DECADES`.

    Returns:
        The indices of each split; the targets of the test split are the months of the decade.

    Example:
        fold("1940s")["test"]  # range(161, 281)
    """
    year = DECADES[decade]
    # The target of example `i` is month `i + 1`.
    first, end = (int(index) - 1 for index in np.searchsorted(MONTHS, (100 * year, 100 * (year + 10))))
    return _split([first - first // HELD_BACK, first, end])


def _split(ends: list[int]) -> dict[str, range]:
    return {name: range(*pair) for name, pair in zip(PERCENT, itertools.pairwise([0, *ends]), strict=True)}

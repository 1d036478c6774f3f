"""The monthly Fama-French factors that the package `arch` ships, and how their months are cut in time. No framework.

Example `i` has the factors of month `i` and is asked for the market's return in month `i + 1`. Cuts go by the month
asked for, so that whatever a fold learns from was known on the day of its first forecast.
"""

import itertools

import numpy as np

from pipelines.core.errors import UserError

FACTORS = ("Mkt-RF", "SMB", "HML", "RF")
MARKET = FACTORS.index("Mkt-RF")
MONTHS = np.array([100 * year + month for year in range(1926, 2019) for month in range(1, 13)][6:-1])
"""The months of the series, July 1926 to November 2018, as YYYYMM."""
EXAMPLES = len(MONTHS) - 1
"""The last month has no month after it."""
# Of the months in their order: the first 70 % train, the next 15 % validate, the last 15 % test. The shares are ours.
PERCENT = {"train": 70, "validation": 15, "test": 15}
DECADES = {f"{year}s": year for year in range(1940, 2020, 10)}
"""The folds of a walk forward, by name: the first year of what is forecast."""
SIZE = "_size"
"""Ends the name of the data of a fold whose targets are returns without their sign."""
HELD_BACK = 5
"""Of the examples before a decade the last fifth validates; the share is ours."""


def read() -> np.ndarray:
    """The factors of `MONTHS`, in percent, in the order of `FACTORS`: float32 [1109, 4].

    Raises:
        UserError: the package ships other months.

    Example:
        read()[:, MARKET].mean()  # 0.66 % a month above the risk-free rate
    """
    # Pandas and statsmodels come along.
    from arch.data import frenchdata

    table = frenchdata.load()
    # The index was read as nanoseconds since 1970, and is YYYYMM.
    months = table.index.as_unit("ns").asi8
    if not np.array_equal(months, MONTHS):
        raise UserError(
            f"the package arch ships the factors of {len(months)} months from {months[0]} to {months[-1]}. Expected "
            f"{len(MONTHS)} from {MONTHS[0]} to {MONTHS[-1]}: install a version of arch that has them, such as 8.0."
        )
    return table[list(FACTORS)].to_numpy(np.float32)


def shares() -> dict[str, range]:
    """Cuts the examples into training, validation and test once, in the order of time: the places of each split.

    Example:
        shares()["test"]  # range(941, 1108)
    """
    return _cut([EXAMPLES * percent // 100 for percent in itertools.accumulate(PERCENT.values())])


def fold(decade: str) -> dict[str, range]:
    """Cuts the examples for the forecasts of a decade: all before it train and validate, and none after it is used.

    Args:
        decade: one of `DECADES`.

    Returns:
        The places of each split; those of the test are asked for the months of the decade.

    Example:
        fold("1940s")["test"]  # range(161, 281)
    """
    year = DECADES[decade]
    # Example `i` is asked for month `i + 1`.
    first, end = (int(place) - 1 for place in np.searchsorted(MONTHS, (100 * year, 100 * (year + 10))))
    return _cut([first - first // HELD_BACK, first, end])


def _cut(ends: list[int]) -> dict[str, range]:
    return {name: range(*pair) for name, pair in zip(PERCENT, itertools.pairwise([0, *ends]), strict=True)}

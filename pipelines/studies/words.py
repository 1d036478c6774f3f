"""Numbers and names as captions say them."""

from collections.abc import Iterable


def listed(things: Iterable[object]) -> str:
    """One or more things in a row.

    Example:
        listed([5, 10, 20])  # "5, 10 and 20"
    """
    *first, last = map(str, things)
    return f"{', '.join(first)} and {last}" if first else last


def ranged(values: Iterable[float], *, percent: bool = False) -> str:
    """From the least to the greatest of some numbers; one number where both are written alike.

    Args:
        values: one or more.
        percent: whether they are shares, to be told in percent.

    Example:
        ranged([0.914, 0.889], percent=True)  # "88.9% to 91.4%"
    """
    known = list(values)
    low, high = (f"{end:.1%}" if percent else f"{end:.3f}" for end in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"

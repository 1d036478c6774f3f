"""Numbers and names as captions tell them."""

from collections.abc import Iterable


def listed(things: Iterable[object]) -> str:
    """One or more things in a row.

    Example:
        listed([5, 10, 20])  # "5, 10 and 20"
    """
    *first, last = map(str, things)
    return f"{', '.join(first)} and {last}" if first else last


def ranged(values: Iterable[float], form: str = ".3f") -> str:
    """From the least to the greatest of some numbers; one number where both are written alike.

    Args:
        values: one or more.
        form: how each is written.

    Example:
        ranged([0.914, 0.889], ".1%")  # "88.9% to 91.4%"
    """
    told = sorted(values)
    low, high = f"{told[0]:{form}}", f"{told[-1]:{form}}"
    return low if low == high else f"{low} to {high}"

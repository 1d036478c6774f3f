"""Numbers as captions tell them."""

from collections.abc import Iterable


def listed(items: Iterable[object]) -> str:
    """Items in a row, as one says them.

    Example:
        listed([5, 10, 20])  # "5, 10 and 20"
    """
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def ends(values: Iterable[float], form: str = ".3f") -> str:
    """The least and the greatest of some numbers, once if they are told alike.

    Args:
        values: at least one.
        form: how each is written.

    Example:
        ends([0.91, 0.9, 0.952], ".1%")  # "90.0% to 95.2%"
    """
    told = sorted(values)
    low, high = f"{told[0]:{form}}", f"{told[-1]:{form}}"
    return low if low == high else f"{low} to {high}"

"""Numbers and names as captions and pages tell them."""

from collections.abc import Iterable, Sequence


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


def numbered(numbers: Sequence[int]) -> str:
    """Whole numbers, such as seeds; four and more that follow one another by their first and last.

    Args:
        numbers: one or more, ascending.

    Example:
        numbered(range(36))  # "0 to 35"
    """
    gapless = numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]} to {numbers[-1]}" if gapless and len(numbers) > 3 else ", ".join(map(str, numbers))

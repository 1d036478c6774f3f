"""Checks of integer arguments."""

import operator
from typing import Any


def positive_integer(name: str, value: Any, meaning: str) -> int:
    """Returns a positive integer of any type, NumPy's included, as an int.

    Args:
        name: name of the argument.
        value: its value.
        meaning: description of the number, for the message.

    Raises:
        ValueError: if it is anything else, such as a bool.

    Example:
        positive_integer("depth", numpy.int64(3), "the number of layers")  # 3
    """
    number = _index(value)
    if number < 1:
        raise ValueError(f"`{name}` must be a positive integer, {meaning}. Received: {name}={value}")
    return number


def positive_integers(name: str, value: Any) -> int | tuple[int, ...]:
    """Returns a positive integer, or a tuple of them, one per convolved axis.

    Args:
        name: name of the argument.
        value: an integer, or a tuple or list of integers.

    Raises:
        ValueError: if it is anything else.
    """
    single = not isinstance(value, tuple | list)
    numbers = tuple(map(_index, (value,) if single else value))
    if not numbers or min(numbers) < 1:
        raise ValueError(f"`{name}` must be a positive integer, or a tuple of them. Received: {name}={value}")
    return numbers[0] if single else numbers


def _index(value: Any) -> int:
    """Returns an integer, or 0 for anything else, such as a bool, which Python counts as an integer."""
    try:
        return 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return 0

"""Argument checks of the factories, with errors in Keras's style."""

from collections.abc import Sequence

import numpy as np


def choice(argument: str, value: object, choices: Sequence[str]) -> None:
    """Raises `ValueError` unless `value` is one of `choices`."""
    if value not in choices:
        expected = ", ".join(f"'{name}'" for name in choices)
        raise ValueError(f"`{argument}` must be one of {expected}. Received: {argument}={value!r}")


def positive(argument: str, value: object) -> None:
    """Raises `ValueError` unless `value` is a whole number of at least 1."""
    if not _is_positive(value):
        raise ValueError(f"`{argument}` must be a whole number of at least 1. Received: {argument}={value!r}")


def shape(value: object, rank: int | None = None) -> tuple[int, ...]:
    """Returns the shape of one example as a tuple; raises `ValueError` unless it is known and of the right rank.

    Args:
        value: `input_shape` of a factory, without the batch axis.
        rank: required number of axes; None accepts any but zero.
    """
    if (
        not isinstance(value, Sequence)
        or not value
        or not all(map(_is_positive, value))
        or rank not in (None, len(value))
    ):
        expected = "(height, width, channels)" if rank == 3 else "the sizes of one example, without the batch"
        raise ValueError(f"`input_shape` must be {expected}, all known. Received: input_shape={value!r}")
    return tuple(value)


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)

"""Axis labels: both ends exactly, and a few round numbers between them."""

import re
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

Ticks = list[tuple[float, str]]
"""Positions on an axis from 0 to 1, with their labels."""

CLOSE = 0.09
"""Minimum distance between two labels, as a share of the axis."""
MOST = 10
"""Maximum number of labels on an axis."""


def linear(low: float, high: float, format_all: Callable[[Sequence[float]], list[str]] | None = None) -> Ticks:
    """Labels a linear axis; a single point if both ends are equal.

    Args:
        low: lower end.
        high: upper end.
        format_all: formats all numbers together; None formats each as short as possible.

    Returns:
        The labels, from the lower end.

    Example:
        linear(-4, -0.2)  # labels -4, -3, -2, -1, -0.2
    """
    format_all = format_all or (lambda values: [short(value) for value in values])
    if low == high:
        return [(0.5, format_all([low])[0])]
    between = np.asarray(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high))
    between[np.abs(between) < 1e-9 * (high - low)] = 0
    values = [low, *_inside(between, low, high), high]
    return list(zip([(value - low) / (high - low) for value in values], format_all(values), strict=True))


def logarithmic(low: float, high: float) -> Ticks:
    """Labels a logarithmic axis.

    Args:
        low: lower end, above 0.
        high: upper end.

    Returns:
        The labels, from the lower end.

    Example:
        logarithmic(0.01, 0.5)  # labels 0.01, 0.02, 0.05, 0.1, 0.2, 0.5
    """
    ends = float(np.log10(low)), float(np.log10(high))
    decades = np.arange(np.floor(ends[0]), np.ceil(ends[1]) + 1)
    if ends[1] - ends[0] < 2:
        between = np.add.outer(decades, np.log10([1, 2, 5])).ravel()
    else:
        every = -(-len(decades) // (MOST - 3))
        between = decades[decades % every == 0]
    values = [ends[0], *_inside(between, *ends), ends[1]]
    texts = [short(low), *(short(float(f"{10**value:.3g}")) for value in values[1:-1]), short(high)]
    return list(zip([(value - ends[0]) / (ends[1] - ends[0]) for value in values], texts, strict=True))


def categorical(order: Sequence[object]) -> Ticks:
    """Labels an axis of equally spaced choices; only some of them if there are many.

    Example:
        categorical(["relu", "tanh"])  # [(0.0, "relu"), (1.0, "tanh")]
    """
    last = len(order) - 1
    if not last:
        return [(0.5, str(order[0]))]
    every = -(-len(order) // MOST)
    places = [*range(0, last - every + 1, every), last]
    return [(place / last, str(order[place])) for place in places]


def percents(values: Sequence[float]) -> list[str]:
    """Formats shares as percentages, with enough decimals to distinguish them and to write inner ones exactly.

    Example:
        percents([0.8237, 0.824, 0.825])  # ["82.37%", "82.40%", "82.50%"]
    """
    for decimals in range(1, 6):
        exact = all(abs(round(100 * value, decimals) - 100 * value) < 1e-9 for value in values[1:-1])
        texts = [f"{value:.{decimals}%}" for value in values]
        if exact and len(set(texts)) == len(values):
            break
    return texts


def significant(values: Sequence[float]) -> list[str]:
    """Formats numbers with three significant figures, or as many more as distinguish them."""
    for digits in range(3, 9):
        texts = [short(value, digits) for value in values]
        if len(set(texts)) == len(values):
            break
    return texts


def short(value: float, digits: int = 6) -> str:
    """Formats a number as short as possible.

    Example:
        short(1e-05)  # "1e-5"
    """
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{digits}g}")


def _inside(between: np.ndarray, low: float, high: float) -> list[float]:
    """Selects round numbers between two ends, far enough from the ends and from each other."""
    room = CLOSE * (high - low)
    selected = [low]
    for value in between.tolist():
        if selected[-1] + room <= value <= high - room:
            selected.append(value)
    return selected[1:]

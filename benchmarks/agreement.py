"""Whether all contestants learn the same.

Training is chaotic: last bits that differ grow, by about ten times every ten steps at first, until curves differ as
those of two seeds do. So the first steps are compared closely, the first epoch less, and of the whole study the mean
loss of its second half alone. Measured between six contestants at depths 10 to 1 000: 8e-6, 1e-4 and 16 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIRST_STEPS = 10


@dataclass(frozen=True)
class Check:
    """A part of the loss curve and how far contestants may differ on it, relative to the first of them."""

    name: str
    tolerance: float


STEPS = Check(f"loss of the first {FIRST_STEPS} steps", 1e-3)
EPOCH = Check("loss of the first epoch", 1e-2)
STUDY = Check("mean loss of the study's second half", 0.3)
# Of the first two steps; bfloat16 keeps two to three digits.
CONV = {"float32": Check("loss of the first 2 steps", 1e-3), "mixed_bfloat16": Check("loss of the first 2 steps", 0.1)}


def deviations(curves: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The largest relative difference of each curve from the first one.

    Args:
        curves: losses by contestant, of equal length. A loss that is not a number differs infinitely.

    Returns:
        By contestant.

    Example:
        deviations({"numpy": [2.0, 1.0], "PyTorch": [2.0, 1.1]})  # {"numpy": 0.0, "PyTorch": 0.1}
    """
    reference = next(iter(curves.values()))
    found = {}
    for name, curve in curves.items():
        differences = [abs(a - b) / abs(b) for a, b in zip(curve, reference, strict=True)]
        found[name] = max(float("inf") if math.isnan(value) else value for value in differences)
    return found


def disagreements(check: Check, curves: Mapping[str, Sequence[float]]) -> list[str]:
    """Who learns something else than the first contestant does, in words; empty if nobody.

    Args:
        check: what the curves are and how far they may differ.
        curves: as in `deviations`.
    """
    reference = next(iter(curves))
    return [
        f"{name} differs from {reference} by {value:.2g} of the {check.name}; at most {check.tolerance:g} is allowed"
        for name, value in deviations(curves).items()
        if not value <= check.tolerance
    ]

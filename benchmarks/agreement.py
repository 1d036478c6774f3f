"""Compares loss curves to check that all contestants learn the same.

Training is chaotic: rounding differences grow, at first tenfold every ten steps, until two curves differ as much as
with different seeds. So the first steps are compared closely, the first epoch less closely, and a whole study only by
the mean loss of its second half. In these checks, six contestants at depths 10 to 1,000 differed by 8e-6, 1e-4 and 16%.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIRST_STEPS = 10


@dataclass(frozen=True)
class Check:
    """A part of the loss curve, and the largest relative difference from the first contestant allowed there."""

    name: str
    tolerance: float


STEPS = Check(f"loss of the first {FIRST_STEPS} steps", 1e-3)
EPOCH = Check("loss of the first epoch", 1e-2)
STUDY = Check("mean loss of the study's second half", 0.3)
# bfloat16 has two to three significant digits.
CONV = {"float32": Check("loss of the first 2 steps", 1e-3), "mixed_bfloat16": Check("loss of the first 2 steps", 0.1)}


def deviations(curves: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Computes the largest relative difference of each curve from the first.

    Args:
        curves: losses by contestant, of equal length. NaN counts as an infinite difference.

    Returns:
        Differences by contestant.

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
    """Describes each contestant whose losses differ too much from the first's.

    Args:
        check: part of the curves, and the tolerance.
        curves: see `deviations`.
    """
    reference = next(iter(curves))
    return [
        f"{name} differs from {reference} by {value:.2g} of the {check.name}; at most {check.tolerance:g} is allowed"
        for name, value in deviations(curves).items()
        if not value <= check.tolerance
    ]

"""What a Hyperband search will train: its number of epochs decides that before the first trial is drawn."""

import math

FACTOR = 3
"""Of the trials of a round so many times fewer are trained in the next, for so many times more epochs."""


def epochs(longest: int) -> list[int]:
    """The epochs of every trial; a trial that goes on with one of the round before counts those that it adds.

    Args:
        longest: epochs of the longest trial.

    Returns:
        One number a trial.

    Example:
        epochs(3)  # [1, 1, 1, 2, 3, 3]
    """
    # As many brackets as `longest` can be divided by the factor; the first halves the hardest.
    brackets, least = 0, float(longest)
    while least >= 1:
        least /= FACTOR
        brackets += 1
    last = math.ceil(1 + math.log(longest, FACTOR))
    each: list[int] = []
    for bracket in reversed(range(brackets)):
        before = 0
        for rest in range(bracket, -1, -1):
            trained = math.ceil(longest / FACTOR**rest)
            each += [trained - before] * math.ceil(last / (bracket + 1) * FACTOR**rest)
            before = trained
    return each

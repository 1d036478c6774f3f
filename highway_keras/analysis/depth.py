"""How deep a highway net really is: two numbers that say how many of its layers are used."""

import numpy as np

from highway_keras.analysis.lesions import Lesions
from highway_keras.analysis.statistics import GateStatistics


def open_layers(statistics: GateStatistics) -> float:
    """The depth by gates: the sum over the layers of their mean gate.

    It is how many of the layers that it passes transform a unit, on average over units, places and examples. The
    definition is ours. It has the form of the expected depth of nets with stochastic depth, the sum of the chances that
    a layer is there (Huang et al. 2016, arXiv 1603.09382, section 3). It does not ask whether what is done matters.

    Args:
        statistics: from `gate_statistics`.

    Returns:
        Between 0 and the number of layers.
    """
    return float(sum(np.mean(means) for means in statistics.layout.split(statistics.mean).values()))


def effective_depth(lesions: Lesions, tolerance: float, score: str = "loss") -> int:
    """The depth by lesions: how many layers make a score worse by more than a tolerance when they alone are closed.

    The definition is ours. Lesions of single layers as a measure of their use are the paper's (section 4.2); Veit,
    Wilber and Belongie 2016 (arXiv 1605.06431) did the same to residual nets. Layers that stand in for each other are
    not counted, as each can be spared.

    Args:
        lesions: from `lesion_layers`.
        tolerance: in the unit of the score: nats of cross-entropy, or a share of the examples.
        score: "loss", of which more is worse, or any other, of which less is.

    Returns:
        A number of layers.
    """
    worse = lesions.cost(score) * (1 if score == "loss" else -1)
    return int(np.sum(worse > tolerance))

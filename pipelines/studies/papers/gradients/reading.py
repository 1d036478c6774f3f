"""Reads the probed gradients for tables and figures."""

import numpy as np

from pipelines.studies.framework.results import Results
from pipelines.studies.shared.numpy_study import arm

KINDS = ("highway", "residual", "plain")
BLOCKS = (10, 30, 50)
SHOWN = 30
"""Depth, in blocks, of the nets that are shown in detail."""


def by_block(results: Results, kind: str, blocks: int, quantity: str) -> np.ndarray:
    """Reads a probed quantity of every block: the median over the runs that did not diverge.

    Args:
        results: results of the study.
        kind: kind of net.
        blocks: number of blocks of the net.
        quantity: column such as "kernel", see `flow`.

    Returns:
        float [1 + epochs, blocks]; no rows if every run diverged.
    """
    rows = results.probed(arm(kind, blocks))
    if not rows:
        return np.empty((0, blocks))
    return np.median([rows[f"{quantity}/{block}"] for block in range(1, blocks + 1)], axis=1).T


def reach(results: Results, kind: str, blocks: int) -> np.ndarray:
    """Factor by which all blocks together scale a gradient: float [1 + epochs], median over runs."""
    return by_block(results, kind, blocks, "gain")[:, 0]


def worst(results: Results, blocks: int) -> float:
    """The largest error of the formula, over all runs and times."""
    return float(results.probed(arm("highway", blocks))["error"].max())

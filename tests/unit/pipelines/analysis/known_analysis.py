"""An analysis with known numbers."""

from dataclasses import replace

import numpy as np

from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.layout import Call
from pipelines.analysis.examples import Part
from pipelines.analysis.measuring import Analysis

LAYOUT = Layout((Call("highway", 2, 2), Call("last", None, 3)))


def lesions(loss, accuracy=None):
    scores = {"loss": np.array(loss)} | ({} if accuracy is None else {"accuracy": np.array(accuracy)})
    return Lesions(
        LAYOUT,
        np.zeros((len(loss), 7), bool),
        12,
        {"loss": 1.0, "accuracy": 0.9} if accuracy is not None else {"loss": 1.0},
        scores,
    )


def analysis(**changes):
    """Returns an analysis of three layers with 2, 2 and 3 units, and two classes of 6 examples each."""
    means = np.array([[0.1, 0.1, 0.4, 0.4, 0.2, 0.2, 0.2], [0.1, 0.1, 0.4, 0.8, 0.2, 0.2, 0.2]])
    slope = np.array([0.0, *[0.2] * 6])
    statistics = GateStatistics(
        LAYOUT,
        bias=np.array([-3.0, -1.0, -2.0, -2.5, -2.5, -2.5, -2.0]),
        initial_bias=np.array([-2.0, -2.0, -2.0]),
        counts=np.array([6, 6]),
        means=means,
        left=np.array([1.0, *[0.5] * 6]),
        right=np.array([*[0.0] * 6, 0.7]),
        slope=slope,
        dtypes=("float32",) * 3,
    )
    part = Part("toy 1.0.0", "train", 24, 12, None, ("cat", "dog"))
    routes = np.array([[0.1, 0.2, 0.2], [0.1, 0.4, 0.2]] * 4)
    made = Analysis(
        layout=LAYOUT,
        whole=part,
        routed=replace(part, split="validation"),
        statistics=statistics,
        lesions=lesions([1.5, 1.05, 0.98], [0.5, 0.9, 0.9]),
        unit_lesions=None,
        example_gates=np.array([0.9, *[0.1] * 6]),
        example_outputs=np.zeros(7),
        routes=routes,
        classes=np.array([0, 1] * 4),
    )
    return replace(made, **changes)

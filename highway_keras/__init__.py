"""Highway networks for Keras: layers, models and the reading of their gates.

Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228. Imports keras and numpy only, and
runs on every backend of Keras that its layers are tested on: TensorFlow and JAX.
"""

from highway_keras import analysis, callbacks, surgery
from highway_keras.analysis import gates, mean_gates
from highway_keras.layers import ConvHighway, Highway, HighwayStack
from highway_keras.models import from_preset, presets
from highway_keras.version import __version__

__all__ = [
    "ConvHighway",
    "Highway",
    "HighwayStack",
    "__version__",
    "analysis",
    "callbacks",
    "from_preset",
    "gates",
    "mean_gates",
    "presets",
    "surgery",
]

"""Highway networks for Keras: layers, models and gate analysis.

Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228. Imports Keras and NumPy only, and
runs on Keras's TensorFlow, JAX and PyTorch backends.
"""

from highway_keras import analysis, callbacks, surgery, weights
from highway_keras.analysis import gates, mean_gates
from highway_keras.layers import ConvHighway, Highway, HighwayConnection, HighwayStack
from highway_keras.models import from_preset, presets, pretrained
from highway_keras.version import __version__

__all__ = [
    "ConvHighway",
    "Highway",
    "HighwayConnection",
    "HighwayStack",
    "__version__",
    "analysis",
    "callbacks",
    "from_preset",
    "gates",
    "mean_gates",
    "presets",
    "pretrained",
    "surgery",
    "weights",
]

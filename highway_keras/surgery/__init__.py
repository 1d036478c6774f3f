"""Conversion of models with weights: stacks to single layers and back, and batch normalization into kernels."""

from highway_keras.surgery.folding import folded as folded
from highway_keras.surgery.stacking import stacked as stacked
from highway_keras.surgery.stacking import unstacked as unstacked

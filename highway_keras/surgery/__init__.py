"""Models with weights, converted: stacks to single layers and back, batch normalization into kernels, fewer layers."""

from highway_keras.surgery.folding import folded as folded
from highway_keras.surgery.pruning import pruned as pruned
from highway_keras.surgery.stacking import stacked as stacked
from highway_keras.surgery.stacking import unstacked as unstacked

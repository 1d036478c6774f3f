"""Conversion of models with weights between stacks and single layers."""

from highway_keras.surgery.stacking import stacked as stacked
from highway_keras.surgery.stacking import unstacked as unstacked

"""Changing the form of a net that has weights already."""

from highway_keras.surgery.stacking import stacked as stacked
from highway_keras.surgery.stacking import unstacked as unstacked

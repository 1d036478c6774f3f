"""Factories of whole nets, and the nets of the paper by name."""

from highway_keras.models.conv import conv as conv
from highway_keras.models.dense import dense as dense
from highway_keras.models.factor import factor as factor
from highway_keras.models.from_preset import from_preset as from_preset
from highway_keras.models.from_preset import presets as presets
from highway_keras.models.stages import Stage as Stage

"""Factories of whole nets, and presets of the paper's nets."""

from highway_keras.models.conv import conv as conv
from highway_keras.models.dense import dense as dense
from highway_keras.models.factor import factor as factor
from highway_keras.models.presets import from_preset as from_preset
from highway_keras.models.presets import presets as presets
from highway_keras.models.stages import Stage as Stage
from highway_keras.models.trained_weights import pretrained as pretrained

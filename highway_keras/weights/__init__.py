"""Weights of highway layers trained in other systems."""

from highway_keras.weights.layouts import LAYOUTS as LAYOUTS
from highway_keras.weights.layouts import WeightLayout as WeightLayout
from highway_keras.weights.loading import load as load

"""Highway networks for Keras: layers, models and the reading of their gates. Imports keras and numpy only."""

from highway_keras.layers import ConvHighway as ConvHighway
from highway_keras.layers import Highway as Highway
from highway_keras.version import __version__ as __version__

"""The version of this program, which must be known without importing Keras."""

from importlib import metadata

VERSION = metadata.version("highway-keras")

"""Highway layers, and contexts that record or close their gates."""

from highway_keras.layers.connection import HighwayConnection as HighwayConnection
from highway_keras.layers.conv_highway import ConvHighway as ConvHighway
from highway_keras.layers.gate import auto_transform_bias as auto_transform_bias
from highway_keras.layers.highway import Highway as Highway
from highway_keras.layers.highway_stack import HighwayStack as HighwayStack
from highway_keras.layers.lesion import Lesion as Lesion
from highway_keras.layers.lesion import lesioned as lesioned
from highway_keras.layers.recording import recording as recording

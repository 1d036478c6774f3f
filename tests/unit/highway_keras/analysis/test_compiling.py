"""Choice of XLA for programs around a model."""

import keras

from highway_keras import HighwayStack
from highway_keras.analysis.compiling import use_xla
from tests.unit.highway_keras.analysis.small_nets import ZEROS, net
from tests.unit.highway_keras.backend import BACKEND


def test_xla_compiles_nets_that_contain_a_stack():
    assert use_xla(net("stacked"))
    inner = keras.Sequential([keras.Input((2,)), HighwayStack(2, **ZEROS)])
    assert use_xla(keras.Sequential([keras.Input((2,)), inner]))


def test_xla_does_not_compile_other_nets_on_tensorflow():
    assert use_xla(net("conv")) == (BACKEND != "tensorflow")
    assert use_xla(net("subclassed")) == (BACKEND != "tensorflow")

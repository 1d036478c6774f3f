"""Choice of XLA for programs around a model."""

import keras

from highway_keras import HighwayStack
from highway_keras.analysis.compiling import use_xla
from tests.unit.highway_keras.analysis.nets import ZEROS, net
from tests.unit.highway_keras.helpers import BACKEND


def test_a_stack_is_compiled_by_xla_wherever_it_is():
    assert use_xla(net("stacked"))
    inner = keras.Sequential([keras.Input((2,)), HighwayStack(2, **ZEROS)])
    assert use_xla(keras.Sequential([keras.Input((2,)), inner]))


def test_other_nets_are_not_on_tensorflow():
    assert use_xla(net("conv")) == (BACKEND != "tensorflow")
    assert use_xla(net("subclassed")) == (BACKEND != "tensorflow")

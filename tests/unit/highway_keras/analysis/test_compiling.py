"""Choice of XLA for programs around a model."""

import keras
import pytest

from highway_keras import HighwayStack
from highway_keras.analysis.compiling import use_xla
from tests.unit.highway_keras.analysis.small_nets import ZEROS, net
from tests.unit.highway_keras.backend import BACKEND


@pytest.mark.skipif(BACKEND == "torch", reason="PyTorch has no XLA")
def test_xla_compiles_nets_that_contain_a_stack():
    assert use_xla(net("stacked"))
    inner = keras.Sequential([keras.Input((2,)), HighwayStack(2, **ZEROS)])
    assert use_xla(keras.Sequential([keras.Input((2,)), inner]))


def test_xla_compiles_other_nets_on_jax_only():
    assert use_xla(net("conv")) == (BACKEND == "jax")
    assert use_xla(net("subclassed")) == (BACKEND == "jax")


@pytest.mark.skipif(BACKEND != "torch", reason="other backends compile")
def test_pytorch_compiles_nothing():
    assert not use_xla(net("stacked"))

"""Layout of a model's gates."""

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack, gates
from highway_keras.analysis import Layout, gradient_norms, highway_layers, lesion_layers
from highway_keras.analysis.layout import Call
from tests.unit.highway_keras.analysis.small_nets import NETS, ZEROS, classifier, examples, net
from tests.unit.highway_keras.backend import scramble, slow_on_jax


@slow_on_jax
@pytest.mark.parametrize("name", NETS)
def test_the_layers_are_found_from_shapes_alone(name):
    model, (x, _) = net(name), examples(name, 3)
    layout, layers = highway_layers(model, x)
    every = gates(model, x)
    assert layout.layers == tuple(every)
    assert layout.units == tuple(gate.shape[-1] for gate in every.values())
    assert layout.values == sum(gate[0].size for gate in every.values())
    assert layout.gates == sum(layout.units)
    assert len(layers) == len(layout.calls)
    for layer, call in zip(layers, layout.calls, strict=True):
        assert call.name.startswith(layer.name)
    assert [number for _, _, number in layout.parts()] == [layout.layers.index(call.layers[0]) for call in layout.calls]


@slow_on_jax
def test_a_single_layer_with_the_name_of_a_layer_in_a_stack_is_kept_apart():
    def made(name):
        layers = HighwayStack(2, name="h", **ZEROS), Highway(name=name, **ZEROS), classifier()
        return scramble(keras.Sequential([keras.Input((5,)), *layers]))

    x, y = examples("stacked")
    model, other = made("h_01"), made("another")
    layout, _ = highway_layers(model, x)
    assert layout.layers == tuple(gates(model, x)) == ("h_01", "h_02", "h_01:2")
    assert [part.tolist() for part in layout.split(layout.spread(np.arange(3))).values()] == [[0] * 5, [1] * 5, [2] * 5]
    np.testing.assert_array_equal([*gates(model, x).values()], [*gates(other, x).values()])
    assert lesion_layers(model, (x, y)).cost().tolist() == lesion_layers(other, (x, y)).cost().tolist()
    assert [*gradient_norms(model, x, y).values()] == [*gradient_norms(other, x, y).values()]


def test_values_of_layers_are_spread_over_units_and_split_by_layer():
    layout, _ = highway_layers(net("conv"), examples("conv", 1)[0])
    spread = layout.spread(np.array([[1, 2, 3]]))
    assert spread.shape == (1, layout.gates)
    split = layout.split(spread)
    assert {name: part.tolist() for name, part in split.items()} == {"c1": [[1] * 2], "c2": [[2] * 2], "c3": [[3] * 3]}
    places = [call.places for call in layout.calls]
    assert places == [36, 36, 9]


def test_layers_of_a_model_with_several_inputs_are_found():
    first, second = keras.Input((2,), name="first"), keras.Input((2,), name="second")
    model = keras.Model({"first": first, "second": second}, Highway(name="of_sum")(first + second))
    layout, _ = highway_layers(model, {"first": np.zeros((1, 2)), "second": np.zeros((1, 2))})
    assert layout.layers == ("of_sum",)


def test_units_of_layers_with_positions_are_channels():
    assert Layout((Call("a", None, 2, 9), Call("b", None, 2, 4))).unit == "channel"
    assert Layout((Call("a", None, 2, 9), Call("b", None, 2))).unit == "unit"
    assert Layout((Call("a", 3, 2),)).unit == "unit"

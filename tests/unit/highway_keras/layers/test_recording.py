"""`recording`: gates, names, nested contexts and threads."""

import threading

import numpy as np
import pytest

from highway_keras import Highway, HighwayStack
from highway_keras.layers import recording
from highway_keras.layers.recording import layer_names
from tests.unit.highway_keras.backend import array, inputs


def test_layers_record_in_the_order_of_their_calls():
    x = inputs(2, 3).astype("float32")
    last, first = Highway(name="a"), Highway(name="b")
    with recording() as recorded:
        last(first(x))
    assert list(recorded) == ["b", "a"]
    np.testing.assert_allclose(array(recorded["b"]), array(first.gates(x)), rtol=1e-6)


def test_a_repeated_name_gets_a_number():
    x = inputs(2, 3).astype("float32")
    shared = Highway(name="same")
    with recording() as recorded:
        Highway(name="same")(shared(shared(x)))
    assert list(recorded) == ["same", "same:2", "same:3"]


def test_nothing_is_recorded_outside_of_the_context_or_after_an_error():
    layer, x = Highway(), inputs(2, 3).astype("float32")
    with pytest.raises(RuntimeError), recording() as recorded:
        raise RuntimeError
    layer(x)
    assert recorded == {}


def test_the_innermost_context_of_the_same_thread_records():
    layer, x = Highway(name="layer"), inputs(2, 3).astype("float32")
    with recording() as outer:
        with recording() as inner:
            layer(x)
        thread = threading.Thread(target=layer, args=(x,))
        thread.start()
        thread.join()
    assert list(inner) == ["layer"]
    assert outer == {}


def test_the_depth_of_a_stack_is_recorded_for_each_call():
    x = inputs(2, 3).astype("float32")
    stack = HighwayStack(4, name="stack")
    with recording() as recorded:
        Highway(name="layer")(stack(stack(x)))
    assert list(recorded) == ["stack", "stack:2", "layer"]
    assert recorded.depths == {"stack": 4, "stack:2": 4}
    assert tuple(recorded["stack:2"].shape) == (2, 4, 3)


def test_layers_of_stacks_and_single_layers_share_no_names():
    x = inputs(2, 3).astype("float32")
    stack, single = HighwayStack(2, name="h"), Highway(name="h_02")
    with recording() as recorded:
        single(stack(single(stack(x))))
    assert list(recorded) == ["h", "h_02:2", "h:3", "h_02:4"]
    with recording() as recorded:
        stack(single(x))
    assert list(recorded) == ["h_02", "h:2"]


@pytest.mark.parametrize(
    ("key", "depth", "names"),
    [
        ("highway", 2, ["highway_01", "highway_02"]),
        ("highway:3", 2, ["highway_01:3", "highway_02:3"]),
        ("a:b", 1, ["a:b_01"]),
    ],
)
def test_layers_of_a_stack_are_named_after_it(key, depth, names):
    assert layer_names(key, depth) == names


@pytest.mark.parametrize("depth", [1, 9, 10, 99, 100, 1000])
def test_names_of_the_layers_of_a_stack_sort_in_their_order(depth):
    names = layer_names("highway", depth)
    assert len(set(names)) == depth
    assert names == sorted(names)

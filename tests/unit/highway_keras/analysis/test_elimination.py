"""Backward elimination of highway layers."""

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack
from highway_keras.analysis import elimination, in_batches, lesion_greedily, lesion_sets
from highway_keras.surgery import pruned
from tests.unit.highway_keras.backend import MARKS_ON_JAX, scramble

pytestmark = MARKS_ON_JAX
LAYERS, CLASSES, EXAMPLES = 6, 3, 40


@pytest.fixture(scope="module")
def net():
    layers = [keras.Input((4,)), Highway(name="first"), HighwayStack(LAYERS - 1, name="deep")]
    return scramble(keras.Sequential([*layers, keras.layers.Dense(CLASSES)]))


@pytest.fixture(scope="module")
def examples():
    random = np.random.default_rng(0)
    return random.normal(size=(EXAMPLES, 4)).astype("float32"), random.integers(CLASSES, size=EXAMPLES)


def by_hand(net, examples):
    """The order and the losses, with each round measured on its own."""
    order, losses = [], []
    while True:
        closed = np.isin(np.arange(LAYERS), order)
        others = np.flatnonzero(~closed)
        sets = np.stack([closed, *(closed | (np.arange(LAYERS) == one) for one in others)])
        found = lesion_sets(net, in_batches(*examples), sets).scores["loss"]
        losses.append(found[0])
        if closed.all():
            return order, losses
        order.append(int(others[np.argmin(found[1:])]))


def test_each_round_closes_the_layer_that_costs_least(net, examples):
    rounds = []
    found = lesion_greedily(net, in_batches(*examples, batch_size=16), progress=rounds.append)
    order, losses = by_hand(net, examples)
    assert found.order == tuple(order)
    np.testing.assert_allclose(found.scores["loss"], losses, rtol=1e-5)
    assert [*found.closed] == rounds == [*range(LAYERS + 1)]
    assert found.examples == EXAMPLES
    assert set(found.scores) == {"loss", "accuracy"}


def test_the_pruned_net_has_the_score_of_its_state(net, examples):
    found = lesion_greedily(net, [(examples[0], examples[1])])
    for count in range(LAYERS + 1):
        logits = pruned(net, found.names(count)).predict(examples[0], verbose=0)
        assert found.scores["accuracy"][count] == pytest.approx((logits.argmax(axis=1) == examples[1]).mean())


def test_it_ends_early(net, examples):
    found = lesion_greedily(net, in_batches(*examples), until=lambda intact, now: now != intact)
    assert [*found.closed] == [0, 1]
    assert len(found.order) == 1


def test_deep_nets_close_several_layers_in_each_round(net, examples, monkeypatch):
    monkeypatch.setattr(elimination, "ROUNDS", 3)
    found = lesion_greedily(net, in_batches(*examples))
    assert [*found.closed] == [0, 2, 4, 6]
    one = lesion_greedily(net, in_batches(*examples), until=lambda *_: True)
    assert found.order[:2] == one.order
    # Never more rounds, also if they do not divide the layers: one layer in each would be six.
    monkeypatch.setattr(elimination, "ROUNDS", 4)
    assert [*lesion_greedily(net, in_batches(*examples)).closed] == [0, 2, 4, 6]


@pytest.mark.parametrize(("tolerance", "count"), [(0.0, 2), (0.01, 3), (0.011, 3), (0.5, 4)])
def test_as_many_layers_are_spared_as_the_tolerance_allows(tolerance, count):
    scores = {"loss": np.array([1.0, 1.1, 0.9, 1.2, 1.3]), "accuracy": np.array([0.9, 0.85, 0.9, 0.89, 0.5])}
    found = elimination.Elimination(None, (3, 1, 0, 2), np.arange(5), 10, scores)
    assert found.spared(tolerance, "accuracy") == count
    assert found.spared(0.15) == 2
    assert found.spared(0.2) == 3


def test_no_layer_is_spared_if_the_whole_net_has_no_score():
    found = elimination.Elimination(None, (0,), np.arange(2), 10, {"loss": np.array([np.nan, np.nan])})
    assert found.spared(0.1) == 0

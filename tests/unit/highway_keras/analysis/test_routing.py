"""Routing signatures, and the variance explained by the class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway_keras import gates
from highway_keras.analysis import explained_by_class, highway_layers, signatures
from tests.unit.highway_keras.analysis.small_nets import examples, net
from tests.unit.highway_keras.backend import few_examples, param_slow, slow_on_jax


@slow_on_jax
@pytest.mark.parametrize("name", ["stacked", "conv", *map(param_slow, ("dense", "subclassed"))])
def test_signatures_are_the_gates_of_each_example(name):
    model, (x, _) = net(name), examples(name, 7)
    layout, _ = highway_layers(model, x)
    every = {layer: gate.reshape(7, -1, gate.shape[-1]) for layer, gate in gates(model, x).items()}
    units = signatures(model, x, per="unit", batch_size=3)
    assert units.shape == (7, layout.gates)
    for layer, found in layout.split(units).items():
        np.testing.assert_allclose(found, every[layer].mean(axis=1), rtol=1e-4)
    layers = signatures(model, x, batch_size=3)
    assert layers.shape == (7, len(layout.layers))
    np.testing.assert_allclose(layers, np.stack([gate.mean((1, 2)) for gate in every.values()], axis=1), rtol=1e-4)


def test_classes_explain_all_or_nothing():
    labels = np.array([0, 0, 1, 1])
    assert explained_by_class(np.array([[0.1], [0.1], [0.9], [0.9]]), labels) == 1
    assert explained_by_class(np.array([[0.1], [0.9], [0.1], [0.9]]), labels) == 0
    assert np.isnan(explained_by_class(np.full((4, 2), 0.3), labels))


def test_examples_without_a_route_do_not_count():
    routes, labels = np.array([[0.1, 0.2], [0.3, 0.1], [np.nan, np.nan], [0.9, 0.4]]), np.array([0, 0, 1, 1])
    known = [0, 1, 3]
    assert explained_by_class(routes, labels) == explained_by_class(routes[known], labels[known])
    assert np.isnan(explained_by_class(routes[2:3], labels[2:3]))


@few_examples
@given(st.integers(0, 100), st.integers(2, 5))
def test_variances_within_and_between_classes_add_up_to_the_total(seed, classes):
    rng = np.random.default_rng(seed)
    routes, labels = rng.random((30, 3)), rng.integers(0, classes, 30)
    within = sum(np.square(routes[labels == k] - routes[labels == k].mean(0)).sum() for k in np.unique(labels))
    total = np.square(routes - routes.mean(0)).sum()
    assert explained_by_class(routes, labels) == pytest.approx(1 - within / total)

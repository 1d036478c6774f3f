"""All benchmarked methods of closing layers give the same losses and leave the net unchanged."""

import numpy as np
import pytest

import highway_keras
from benchmarks import agreement
from benchmarks.contestants import lesioning
from benchmarks.lesions import CURVE


@pytest.mark.slow
def test_all_methods_give_the_same_losses():
    rng = np.random.default_rng(1)
    x, y = rng.random((30, 28, 28, 1), dtype="float32"), rng.integers(0, 10, 30)
    net = highway_keras.from_preset("mnist_dense_50", depth=4)
    lesioning._draw(net)
    before = net.get_weights()
    curves = {way.__name__: way(net, x, y) for way in (lesioning.closed, lesioning.rebuilt, lesioning.ours)}
    assert [len(curve) for curve in curves.values()] == [3, 3, 3]
    assert agreement.disagreements(CURVE, curves) == []
    # Each layer changes the loss; otherwise all methods would agree trivially.
    assert len(set(np.round(curves["ours"], 4))) == 3
    for old, new in zip(before, net.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)

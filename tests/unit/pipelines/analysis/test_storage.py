"""Round trip of measurements through arrays."""

import io
from dataclasses import replace

import numpy as np
import pytest

from highway_keras.analysis import effective_depth, open_layers
from pipelines.analysis import storage
from tests.unit.pipelines.analysis.known_analysis import analysis, lesions


def through_a_file(arrays):
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file) as read:
        return dict(read)


def test_statistics_survive_a_round_trip_through_a_file():
    found = analysis().statistics
    arrays = through_a_file(storage.of_statistics(found))
    assert set(arrays) <= set(storage.SHAPES)
    back = storage.statistics(arrays)
    assert back.layout.layers == found.layout.layers
    assert back.layout.units == found.layout.units
    assert back.dtypes == found.dtypes
    for name in ("bias", "initial_bias", "counts", "left", "right", "slope", "dead"):
        np.testing.assert_array_equal(getattr(back, name), getattr(found, name), err_msg=name)
    np.testing.assert_allclose(back.differences, found.differences, atol=1e-7)
    assert open_layers(back) == pytest.approx(open_layers(found))


def test_weighted_statistics_keep_their_means():
    # The classes have as many examples, and one counts three times as much.
    found = replace(analysis().statistics, weights=np.array([[6.0] * 7, [18.0] * 7]))
    arrays = through_a_file(storage.of_statistics(found))
    assert set(arrays) <= set(storage.SHAPES)
    back = storage.statistics(arrays)
    np.testing.assert_allclose(back.mean, found.mean, rtol=1e-6)
    np.testing.assert_allclose(back.differences, found.differences, atol=1e-7)


@pytest.mark.parametrize(("prefix", "count"), [("lesion", 3), ("unit_lesion", 7)])
def test_lesions_survive_a_round_trip_through_a_file(prefix, count):
    found = lesions(np.linspace(0.9, 1.5, count), np.linspace(0.9, 0.1, count))
    other = {"lesion": "unit_lesion", "unit_lesion": "lesion"}[prefix]
    # Stored together with other lesions, in one file.
    others = storage.of_lesions(lesions([9.0] * (10 - count), [0.0] * (10 - count)), other)
    arrays = through_a_file(others | storage.of_lesions(found, prefix))
    assert set(arrays) <= set(storage.SHAPES)
    back = storage.lesions(arrays, prefix)
    assert back.layout.layers == found.layout.layers
    assert (back.intact, back.examples) == (found.intact, found.examples)
    assert back.closed.shape == (count, 7)
    assert back.closed.sum() == 7
    np.testing.assert_array_equal(back.cost("accuracy"), found.cost("accuracy"))
    assert effective_depth(back, 0.2) == effective_depth(found, 0.2)

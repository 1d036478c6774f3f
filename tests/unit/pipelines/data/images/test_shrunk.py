import numpy as np
import pytest
import tensorflow as tf

from pipelines.data.images.shrunk import shrunk
from serving import pictures


@pytest.fixture(scope="module")
def graph():
    return tf.function(shrunk, input_signature=[tf.TensorSpec((None, None, 4), tf.uint8)])


@pytest.mark.parametrize("size", [(1024, 30), (30, 1024), (1250, 1025), (1550, 350), (1, 35_000), (1750, 3)])
@pytest.mark.parametrize("opaque", [True, False])
def test_large_pictures_shrink_as_behind_the_endpoint(graph, size, opaque):
    rgba = np.random.default_rng(0).integers(0, 256, (*size, 4), dtype=np.uint8)
    if opaque:
        rgba[..., 3] = 255
    found, expected = graph(rgba).numpy().astype(int), pictures.shrunk(rgba).astype(int)
    assert found.shape == expected.shape
    assert max(found.shape[:2]) < 2 * pictures.SIDE
    # What is shown of a colour: Pillow rounds it before it takes the mean, which faint pixels make a lot of.
    shown, expected_shown = (one[..., :3] * one[..., 3:] / 255 for one in (found, expected))
    assert np.abs(found[..., 3] - expected[..., 3]).max() <= 1
    assert np.abs(shown - expected_shown).max() <= 3


def test_small_pictures_stay_as_they_are(graph):
    rgba = np.random.default_rng(0).integers(0, 256, (999, 40, 4), dtype=np.uint8)
    np.testing.assert_array_equal(graph(rgba), rgba)


def test_nothing_at_all_stays_nothing(graph):
    assert not graph(np.zeros((1000, 40, 4), np.uint8)).numpy().any()

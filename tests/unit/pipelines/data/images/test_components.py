import numpy as np
import pytest
import tensorflow as tf
from scipy import ndimage

from pipelines.data.images.components import label, measure

SHAPE = (2, 24, 24)
CORNERS = np.ones((3, 3))


@pytest.fixture(scope="module")
def labelled():
    return tf.function(label, input_signature=[tf.TensorSpec(SHAPE, tf.bool)])


def spiral():
    mask = np.zeros(SHAPE[1:], bool)
    (y, x), (down, across), side = (1, 1), (0, 1), 21
    for turn in range(11):
        for _ in range(side - 2 * turn if side - 2 * turn > 0 else 0):
            mask[y, x] = True
            y, x = y + down, x + across
        down, across = across, -down
    return mask


@pytest.mark.parametrize("density", [0.0, 0.1, 0.3, 0.45, 0.6, 1.0])
def test_components_are_those_of_scipy(labelled, density):
    masks = np.random.default_rng(0).random(SHAPE) < density
    found = labelled(masks).numpy()
    expected = np.stack([ndimage.label(mask, CORNERS)[0] for mask in masks])
    np.testing.assert_array_equal(found > 0, masks)
    for one, other in zip(found, expected, strict=True):
        # The same partition: a label of one is a label of the other.
        assert len({*zip(one.flat, other.flat, strict=True)}) == len(np.unique(one)) == len(np.unique(other))
    # The two maps share no component.
    assert not (set(np.unique(found[0])) & set(np.unique(found[1]))) - {0}


def test_a_spiral_is_one_component(labelled):
    found = labelled(np.stack([spiral(), ~spiral()])).numpy()
    assert len(np.unique(found[0])) == 2


def test_measurements(labelled):
    masks = np.zeros(SHAPE, bool)
    masks[0, 2:5, 3:10] = True
    masks[1, 20:, :2] = True
    labels = labelled(masks)
    found = measure(labels, tf.constant(0.5), tf.constant(2.0), least=1)
    for number, expected in (
        (labels[0, 2, 3], (21, 31, 0, 0, 1, 2.5, 6, 20)),
        (labels[1, 20, 0], (8, 12, 6, 4, 10, 12, 0, 4)),
    ):
        measured = [values[number] for values in (*found[:-1], *found.box)]
        np.testing.assert_allclose(measured, expected, atol=1e-5)
    assert found.box.longest[labels[0, 2, 3]] == 14

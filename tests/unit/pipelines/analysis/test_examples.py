"""Choice of the examples that are read."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from highway_keras.analysis.layout import Call, Layout
from pipelines.analysis.examples import batch_size, spaced
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream


def both(count, tmp_path=None):
    labels = np.arange(count)
    images = np.zeros((count, 1, 1, 1), np.uint8) + labels[:, None, None, None].astype(np.uint8)
    records = tf.data.Dataset.from_tensor_slices((images, labels))
    return Examples(images, labels), Stream(records, lambda image: image, count, tmp_path)


@given(st.integers(1, 60), st.integers(1, 70))
def test_examples_are_evenly_spaced(count, limit):
    examples, _ = both(count)
    found = spaced(examples, limit)
    assert len(found) == min(count, limit)
    steps = np.diff(found.labels)
    assert not len(steps) or (steps.min() >= 1 and steps.max() - steps.min() <= 1)
    np.testing.assert_array_equal(found.images[:, 0, 0, 0], found.labels)


@pytest.mark.parametrize(("count", "limit"), [(10, 3), (10, 10), (7, 5), (9, 1), (5, 8)])
def test_examples_on_disk_are_evenly_spaced_too(count, limit, tmp_path):
    _, stream = both(count, tmp_path)
    found = spaced(stream, limit)
    labels = found.labels
    assert len(found) == len(labels) == min(count, limit)
    steps = np.diff(labels)
    assert not len(steps) or (steps.min() >= 1 and steps.max() - steps.min() <= 1)


def test_no_limit_reads_all():
    examples, stream = both(5)
    assert spaced(examples, None) is examples
    assert spaced(stream, None) is stream


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (Call("small", None, 4), 500),
        (Call("deep", 999, 50), 335),
        (Call("wide", None, 80, 4 * 32 * 32), 51),
        (Call("huge", None, 64, 1000 * 1000), 1),
    ],
)
def test_large_nets_are_read_in_small_batches(call, size):
    assert batch_size(Layout((call,))) == size

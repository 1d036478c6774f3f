"""Labels in all usual forms give the same classes; anything else is rejected."""

import numpy as np
import pytest

from highway_keras.analysis.labels import check_labels, class_numbers

NUMBERS = np.array([2, 0, 1, 2])
TOKENS = np.array([[0, 1], [2, 2], [1, 0]])
BINARY = np.array([0, 1, 1])


@pytest.mark.parametrize(
    ("y", "outputs", "expected"),
    [
        (NUMBERS, (None, 3), NUMBERS),
        (NUMBERS.astype("uint8")[:, None], (None, 3), NUMBERS),  # as in keras.datasets.cifar10
        (NUMBERS.astype("float32"), (None, 3), NUMBERS),
        (np.eye(3)[NUMBERS], (None, 3), NUMBERS),
        (np.eye(3, dtype=int)[NUMBERS], (4, 3), NUMBERS),
        (TOKENS, (None, None, 3), TOKENS),
        (TOKENS[..., None], (None, 2, 3), TOKENS),
        (np.eye(3)[TOKENS], (None, 2, 3), TOKENS),
        (BINARY, (None, 1), BINARY),
        (BINARY.astype(bool)[:, None], (None, 1), BINARY),
        (BINARY, (None,), BINARY),
        (TOKENS % 2, (None, None, 1), TOKENS % 2),
        (np.array([[1], [0]]), (None, 1, 3), [[1], [0]]),  # sequences of one step
    ],
)
def test_labels_of_every_form_become_class_numbers(y, outputs, expected):
    found = check_labels(y, outputs)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


def test_soft_labels_are_kept_and_their_classes_are_the_largest():
    y = np.array([[0.2, 0.8], [0.5, 0.5]])
    np.testing.assert_allclose(check_labels(y, (None, 2)), y)
    np.testing.assert_array_equal(class_numbers(y, 2), [1, 0])


@pytest.mark.parametrize(
    ("y", "outputs"),
    [
        ([0, 3], (None, 3)),
        ([-1, 0], (None, 3)),
        ([0.5, 1.0], (None, 3)),
        ([float("nan"), 1.0], (None, 3)),
        (["cat", "dog"], (None, 3)),
        ([[0, 1], [1, 0]], (None, 3)),  # neither one-hot of 3 nor numbers
        ([[1, 1, 0]], (None, 3)),  # several classes at once
        ([[0.7, 0.7, -0.4]], (None, 3)),
        ([0, 1], (None, 2, 3)),
        ([[0, 1, 1]], (None, 2, 3)),  # more steps than outputs
        ([0, 2], (None, 1)),
        ([-1, 1], (None, 1)),
        ([[0.3], [1.0]], (None, 1)),  # a regression target
    ],
)
def test_invalid_labels_are_rejected(y, outputs):
    with pytest.raises(ValueError, match=r"y must be class numbers from 0 to .*regression.*Received: y of shape"):
        check_labels(y, outputs)


@pytest.mark.parametrize("y", [NUMBERS, NUMBERS[:, None], np.eye(3)[NUMBERS]], ids=["numbers", "column", "one-hot"])
@pytest.mark.parametrize("classes", [3, None])
def test_labels_of_every_form_give_one_class_per_example(y, classes):
    np.testing.assert_array_equal(class_numbers(y, classes), NUMBERS)

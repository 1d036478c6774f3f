import numpy as np
import pytest

from pipelines.exporting.parity import TOLERANCE, compare, passes

IMAGES = np.zeros((10, 2, 2, 1), "uint8")
CERTAIN = np.tile(np.float32([0.7, 0.2, 0.1]), (10, 1))


def form(probabilities, classes=None, seen=None):
    """A form of a model that gives these answers, in order."""
    position = 0

    def predict(images):
        nonlocal position
        part = slice(position, position + len(images))
        position += len(images)
        if seen is not None:
            seen.append(len(images))
        return probabilities[part], (probabilities.argmax(-1) if classes is None else classes)[part]

    return predict


def test_equal_forms_pass():
    agreement = compare(form(CERTAIN), form(CERTAIN), IMAGES)
    assert (agreement.max_abs_difference, agreement.same_label, agreement.ties) == (0, 10, 0)
    assert passes(agreement, 10)


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (3, [1, 2]), (4, [1, 3]), (10, [1, 3, 6])])
def test_batches_of_one_of_three_and_of_the_rest(count, sizes):
    seen = []
    compare(form(CERTAIN), form(CERTAIN, seen=seen), IMAGES[:count])
    assert seen == sizes


@pytest.mark.parametrize(("difference", "good"), [(0.9 * TOLERANCE, True), (1.1 * TOLERANCE, False)])
def test_one_probability_decides(difference, good):
    other = CERTAIN.copy()
    other[9, 1] += difference
    agreement = compare(form(CERTAIN), form(other), IMAGES)
    assert agreement.max_abs_difference == pytest.approx(difference, rel=1e-3)
    assert passes(agreement, 10) is good


def test_one_wrong_label_fails_even_with_equal_probabilities():
    classes = np.zeros(10, int)
    classes[4] = 1
    agreement = compare(form(CERTAIN), form(CERTAIN, classes), IMAGES)
    assert (agreement.same_label, agreement.ties) == (9, 0)
    assert not passes(agreement, 10)


def test_either_label_will_do_in_a_tie():
    near = CERTAIN.copy()
    near[4] = [0.45, 0.45 - TOLERANCE, 0.1]
    other = near.copy()
    other[4, :2] = other[4, 1::-1]
    agreement = compare(form(near), form(other), IMAGES)
    assert (agreement.same_label, agreement.ties) == (9, 1)
    assert passes(agreement, 10)


def test_nan_never_passes():
    broken = CERTAIN.copy()
    broken[2] = np.nan
    assert not passes(compare(form(CERTAIN), form(broken, np.zeros(10, int)), IMAGES), 10)
    assert not passes(compare(form(broken), form(broken), IMAGES), 10)

import numpy as np
import pytest

from pipelines.export.form import TOLERANCE
from pipelines.export.parity import compare, passes

LABELS = ("cat", "dog", "owl")
CERTAIN = np.tile(np.float32([0.7, 0.2, 0.1]), (10, 1))
GATES = np.tile(np.float32([0.3, 0.4]), (10, 1))


def outputs(probabilities, classes=None, gate_means=None):
    """Returns the outputs of a form of a model."""
    classes = probabilities.argmax(-1) if classes is None else classes
    label = np.array([LABELS[index].encode() for index in classes], object)
    return {"probabilities": probabilities, "class_id": classes, "label": label, "gate_means": gate_means}


def agreed(probabilities, classes=None, expected=CERTAIN, tolerance=TOLERANCE):
    return compare(expected, LABELS, outputs(probabilities, classes), None, tolerance)


def test_equal_forms_pass():
    agreement = agreed(CERTAIN)
    assert (agreement.max_abs_difference, agreement.same_label, agreement.ties) == (0, 10, 0)
    assert agreement.gate_means is None
    assert passes(agreement, 10, TOLERANCE)


@pytest.mark.parametrize(("difference", "good"), [(0.9 * TOLERANCE, True), (1.1 * TOLERANCE, False)])
def test_one_probability_decides(difference, good):
    other = CERTAIN.copy()
    other[9, 1] += difference
    agreement = agreed(other)
    assert agreement.max_abs_difference == pytest.approx(difference, rel=1e-3)
    assert passes(agreement, 10, TOLERANCE) is good
    assert passes(agreement, 10, 2 * TOLERANCE)


@pytest.mark.parametrize(("difference", "good"), [(0.9 * TOLERANCE, True), (1.1 * TOLERANCE, False)])
def test_one_gate_decides(difference, good):
    other = GATES.copy()
    other[3, 1] += difference
    agreement = compare(CERTAIN, LABELS, outputs(CERTAIN, gate_means=other), GATES, TOLERANCE)
    assert agreement.gate_means == pytest.approx(difference, rel=1e-3)
    assert passes(agreement, 10, TOLERANCE) is good


def test_one_wrong_class_fails_even_with_equal_probabilities():
    classes = np.zeros(10, int)
    classes[4] = 1
    agreement = agreed(CERTAIN, classes)
    assert (agreement.same_label, agreement.ties) == (9, 0)
    assert not passes(agreement, 10, TOLERANCE)


def test_one_wrong_name_fails_even_in_a_tie():
    near = CERTAIN.copy()
    near[4] = [0.45, 0.45 - TOLERANCE, 0.1]
    found = outputs(near)
    found["label"][4] = b"dog"
    agreement = compare(near, LABELS, found, None, TOLERANCE)
    assert (agreement.same_label, agreement.ties) == (9, 0)


def test_either_class_is_accepted_in_a_tie():
    near = CERTAIN.copy()
    near[4] = [0.45, 0.45 - TOLERANCE, 0.1]
    other = near.copy()
    other[4, :2] = other[4, 1::-1]
    agreement = agreed(other, expected=near)
    assert (agreement.same_label, agreement.ties) == (9, 1)
    assert passes(agreement, 10, TOLERANCE)


def test_nan_never_passes():
    broken = CERTAIN.copy()
    broken[2] = np.nan
    assert not passes(agreed(broken, np.zeros(10, int)), 10, TOLERANCE)
    assert not passes(agreed(broken, expected=broken), 10, TOLERANCE)

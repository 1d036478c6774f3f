import math

import pytest

from benchmarks import agreement
from benchmarks.agreement import Check

CHECK = Check("loss", 0.01)


def test_deviations_are_relative_to_the_first_curve():
    found = agreement.deviations({"a": [2.0, 1.0], "b": [2.0, 1.1], "c": [1.0, 1.0]})
    assert found == pytest.approx({"a": 0.0, "b": 0.1, "c": 0.5})


def test_agreement_is_not_reported():
    assert agreement.disagreements(CHECK, {"a": [1.0, 2.0], "b": [1.009, 1.991]}) == []


def test_disagreement_is_reported_with_the_tolerance():
    (line,) = agreement.disagreements(CHECK, {"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0, 2.1]})
    assert line.startswith("c differs from a by 0.05 of the loss")
    assert line.endswith("at most 0.01 is allowed")


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_a_disagreement(loss):
    assert agreement.disagreements(CHECK, {"a": [1.0, 2.0], "b": [1.0, loss]})


def test_curves_of_different_length_are_an_error():
    with pytest.raises(ValueError, match="argument 2"):
        agreement.deviations({"a": [1.0, 2.0], "b": [1.0]})

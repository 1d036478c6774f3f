"""Metrics of nets whose examples have any number of classes."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.core.run import DataRecord
from pipelines.training import evaluation
from pipelines.training.multi_label import average_precision, calibration_error, cross_entropy, measure, sigmoid
from pipelines.training.net import MacroF1
from pipelines.verbs.evaluate import table

NAMES = ("cat", "dog", "owl")
# Two of the three cats are found, one dog is, and no example has an owl.
LOGITS = np.array([[2.0, 1.0, -1.0], [1.0, -3.0, -2.0], [-1.0, -2.0, -3.0], [-4.0, -1.0, -4.0]])
TRUTH = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]], np.uint8)


def measured(logits=LOGITS, truth=TRUTH):
    return measure(np.float32(logits), truth, NAMES, "final", "toy 1.0.0")


def test_metrics_by_hand():
    found = measured()
    cat, dog, owl = found.classes
    assert [(one.count, one.predicted, one.correct) for one in found.classes] == [(3, 2, 2), (1, 1, 1), (0, 0, 0)]
    assert (cat.precision, cat.recall, cat.f1) == (1, 2 / 3, pytest.approx(0.8))
    assert (owl.precision, owl.recall, owl.f1, owl.average_precision) == (0, 0, 0, None)
    assert (cat.average_precision, dog.average_precision) == (1, 1)
    # A class that neither occurs nor is predicted does not count.
    assert (found.count, found.mean_average_precision, found.macro_f1) == (4, 1, pytest.approx(0.9))
    assert (found.label_accuracy, found.exact) == (pytest.approx(11 / 12), 3 / 4)
    probabilities = 1 / (1 + np.exp(-LOGITS))
    expected = -np.where(TRUTH == 1, np.log(probabilities), np.log(1 - probabilities)).sum(axis=1).mean()
    assert found.loss == pytest.approx(expected, rel=1e-6)
    assert found.summary == "test mean average precision 100.00%, macro F1 0.900"


def test_the_average_precision_is_that_of_every_threshold():
    true = np.array([True, False, True])
    assert average_precision(np.array([3.0, 2.0, 1.0]), true) == pytest.approx((1 + 2 / 3) / 2)
    # Equal scores share a threshold.
    assert average_precision(np.array([1.0, 1.0, 0.0]), true) == pytest.approx((1 / 2 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_the_average_precision_is_a_sum_over_thresholds(rows):
    scores, true = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = scores >= threshold
        recall = true[chosen].sum() / max(true.sum(), 1)
        total += true[chosen].mean() * (recall - before)
        before = recall
    found = average_precision(scores, true)
    assert found == (pytest.approx(total) if true.any() else None)


def test_large_logits_do_not_overflow():
    logits = np.array([[1000.0, -1000.0]])
    assert cross_entropy(logits, np.array([[1, 0]])) == 0
    assert cross_entropy(logits, np.array([[0, 1]])) == 2000
    assert sigmoid(logits).tolist() == [[1, 0]]


def test_labels_that_are_present_as_often_as_their_probability_are_calibrated():
    logits = np.full((10, 1), np.log(0.8 / 0.2))
    assert calibration_error(logits, np.arange(10)[:, None] < 8) == pytest.approx(0, abs=1e-9)
    assert calibration_error(logits, np.arange(10)[:, None] < 3) == pytest.approx(0.5)


def test_a_temperature_is_fitted_to_independent_probabilities():
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (3000, 4))
    truth = (random.random(logits.shape) < sigmoid(logits)).astype(np.uint8)
    assert evaluation.fit_temperature(logits, truth) == pytest.approx(1, abs=0.1)
    assert evaluation.fit_temperature(5 * logits, truth) == pytest.approx(5, rel=0.1)


def test_a_run_has_the_evaluation_of_its_task(tmp_path):
    facts = {"name": "t", "version": "1.0.0", "shape": (8, 8, 1), "counts": {}}
    data = DataRecord(labels=NAMES, multi_label=True, **facts)
    assert evaluation.kind_of(data) is type(measured())
    assert evaluation.kind_of(DataRecord(labels=NAMES, **facts)) is evaluation.Evaluation
    assert evaluation.kind_of(DataRecord(labels=(), **facts)) is evaluation.Regression
    path = tmp_path / "evaluation.json"
    path.write_text(measured().model_dump_json())
    assert evaluation.read(path, evaluation.kind_of(data)) == measured()
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        evaluation.read(path, evaluation.Evaluation)


def test_the_table_shows_each_class():
    shown = table(measured())
    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == ["mean", *NAMES]
    assert cells[1] == ["4", "3", "1", "0"]
    assert cells[4] == ["0.900", "0.800", "1.000", "0.000"]
    assert cells[5] == ["100.00%", "100.00%", "100.00%", ""]
    assert shown.caption.startswith("91.67% of the labels right, all of an example for 75.00%; cross-entropy")


@pytest.mark.parametrize("cuts", [[4], [1, 4], [2, 3, 4]])
def test_the_macro_f1_of_training_is_that_of_all_batches(cuts):
    metric = MacroF1(3)
    for start, stop in zip([0, *cuts], cuts, strict=False):
        metric.update_state(keras.ops.convert_to_tensor(TRUTH[start:stop].astype("float32")), LOGITS[start:stop])
    assert float(metric.result()) == pytest.approx(measured().macro_f1)
    metric.reset_state()
    assert float(metric.result()) == 0

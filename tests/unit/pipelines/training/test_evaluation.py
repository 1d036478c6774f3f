import io
import math
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from scipy.special import softmax

from pipelines.core.errors import UserError
from pipelines.training import evaluation
from pipelines.training.evaluate import _other_here, folder
from pipelines.verbs.evaluate import table
from tests import shapes

LABELS = np.array([0, 0, 1, 1, 1, 2])
LOGITS = np.array([[2.0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 2, 0], [0, 0, 2], [0, 2, 0]], "float32")


def result(logits=LOGITS, labels=LABELS, names=("a", "b", "c")):
    return evaluation.measure(logits, labels, names, "best", "toy 1.0.0")


def test_counts_and_averages():
    found = result()
    assert (found.count, found.correct, found.accuracy, found.weights) == (6, 3, 0.5, "best")
    assert found.confusion == ((1, 1, 0), (0, 2, 1), (0, 1, 0))
    assert [(item.label, item.count, item.correct) for item in found.classes] == [("a", 2, 1), ("b", 3, 2), ("c", 1, 0)]
    right, wrong = math.log(1 + 2 * math.exp(-2)), math.log(2 + math.exp(2))
    assert found.loss == pytest.approx((right + wrong) / 2)


@pytest.mark.parametrize(
    ("right", "bins", "expected"),
    # Ten answers with probability 0.9, two with 0.6, of which one is right.
    [(9, 15, 0.1 * 2 / 12), (8, 15, (0.1 * 10 + 0.1 * 2) / 12), (8, 1, abs(10 * 0.9 + 2 * 0.6 - 9) / 12)],
)
def test_the_calibration_error_is_the_mean_gap_between_confidence_and_accuracy(right, bins, expected):
    probabilities = np.array([[0.9, 0.1]] * 10 + [[0.6, 0.4]] * 2)
    labels = np.array([0] * right + [1] * (10 - right) + [0, 1])
    assert evaluation.calibration_error(probabilities, labels, bins) == pytest.approx(expected)


def test_precision_and_f1_of_each_class():
    found = result()
    assert [found.precision(index) for index in range(3)] == [1.0, 0.5, 0.0]
    assert [found.f1(index) for index in range(3)] == pytest.approx(
        [2 * 0.5 / 1.5, 2 * (0.5 * 2 / 3) / (0.5 + 2 / 3), 0]
    )


def test_large_logits_do_not_overflow():
    assert result(LOGITS * 1e4).loss == pytest.approx(1e4)


def test_a_class_without_examples_has_no_accuracy():
    assert result(names=("a", "b", "c"), labels=np.array([0, 0, 1, 1, 1, 1])).classes[2].accuracy == 0.0


@pytest.mark.parametrize(
    ("correct", "count", "expected"),
    # Newcombe 1998, table I, method 3.
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_the_interval_is_wilsons(correct, count, expected):
    assert evaluation.interval(correct, count) == pytest.approx(expected, abs=5e-5)


def test_an_evaluation_survives_a_round_trip_through_its_file(tmp_path):
    path = tmp_path / "evaluation.json"
    assert evaluation.read(path, evaluation.Evaluation) is None
    path.write_text(result().model_dump_json())
    assert evaluation.read(path, evaluation.Evaluation) == result()
    path.write_text("{}")
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        evaluation.read(path, evaluation.Evaluation)


def test_the_table_shows_all_of_few_classes_and_the_worst_of_many():
    assert table(result()).row_count == 4
    labels = np.arange(100)
    logits = np.eye(100)[np.where(labels < 10, 99, labels)]
    many = table(result(logits, labels, tuple(f"class {index}" for index in labels)))
    assert many.row_count == 6
    assert list(many.columns[0].cells)[1:] == [f"class {index}" for index in range(5)]


def test_the_worst_classes_are_not_those_without_examples():
    labels = np.arange(90, 100)
    logits = np.eye(100)[np.where(labels < 93, 5, labels)]
    shown = table(result(logits, labels, tuple(f"class {index}" for index in range(100))))
    assert list(shown.columns[0].cells)[1:4] == ["class 90", "class 91", "class 92"]
    few = table(result(np.eye(3)[[0, 1]], np.array([0, 1]), ("a", "b", "c")))
    assert list(few.columns[2].cells)[1:] == ["100.00%", "100.00%", ""]


TARGETS = np.array([[1.0], [2.0], [3.0], [6.0]], "float32")


def forecast(predicted, targets=TARGETS, mean=2.0):
    return evaluation.measure_regression(np.asarray(predicted, "float32"), targets, mean, "final", "toy 1.0.0")


def test_errors_of_a_regression_by_hand():
    found = forecast([[2.0], [2.0], [5.0], [3.0]])
    assert (found.count, found.mae, found.training_mean) == (4, 1.5, 2.0)
    assert found.rmse == pytest.approx(np.sqrt(14 / 4))
    # The squared distances from the mean of these targets, 3, are 4, 1, 0, 9: the training mean does not count.
    assert found.r2 == pytest.approx(1 - 14 / 14)


def test_r2_is_1_if_perfect_0_for_the_mean_and_negative_if_worse():
    assert forecast(TARGETS).r2 == 1
    assert forecast(np.full((4, 1), 3.0)).r2 == 0
    assert forecast(np.full((4, 1), 2.0)).r2 == pytest.approx(1 - 18 / 14)
    assert forecast(-TARGETS).r2 < 0


def test_targets_without_spread_have_no_r2():
    found = forecast(TARGETS, targets=np.full((4, 1), 2.0))
    assert (found.r2, found.summary) == (None, "test R² undefined")
    assert found.mae == pytest.approx(np.abs(TARGETS - 2).mean())
    assert evaluation.Regression.model_validate_json(found.model_dump_json()) == found


def test_a_regression_survives_a_round_trip_through_its_file(tmp_path):
    path = tmp_path / "evaluation.json"
    path.write_text(forecast(-TARGETS).model_dump_json())
    assert evaluation.read(path, evaluation.Regression) == forecast(-TARGETS)
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        evaluation.read(path, evaluation.Evaluation)


def test_the_table_of_a_regression_shows_the_errors():
    shown = table(forecast([[2.0], [2.0], [5.0], [3.0]]))
    assert [list(column.cells) for column in shown.columns] == [["4"], ["1.871"], ["1.5"], ["0.0000"]]


@pytest.mark.parametrize("count", [18, 200])
def test_a_net_that_is_right_on_all_of_a_few_examples_does_not_become_certain(count):
    random = np.random.default_rng(count)
    labels = random.integers(0, 5, count)
    logits = random.normal(0, 0.3, (count, 5))
    logits[np.arange(count), labels] += random.uniform(2, 4, count)
    temperature = evaluation.fit_temperature(logits, labels)
    confidence = softmax(logits / temperature, axis=1)[np.arange(count), labels]
    assert confidence.mean() == pytest.approx((count + 1) / (count + 2), rel=0.01)
    several = np.eye(5, dtype=np.uint8)[labels]
    assert evaluation.fit_temperature(logits - 1, several) > 0.1


def test_a_temperature_restores_probabilities():
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (3000, 4))
    labels = np.array([random.choice(4, p=row) for row in softmax(logits, axis=1)])
    assert evaluation.fit_temperature(logits, labels) == pytest.approx(1, abs=0.1)
    assert evaluation.fit_temperature(5 * logits, labels) == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize(
    ("data", "name"),
    [(".", "new_photos"), ("..", "all"), ("rows.csv", "rows_csv"), ("s3://bucket/rows.csv", "rows_csv")],
)
def test_other_data_are_evaluated_in_a_folder_of_their_name(tmp_path, monkeypatch, data, name):
    (tmp_path / "all" / "new photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "all" / "new photos")
    assert folder(tmp_path / "run", data) == tmp_path / "run" / "evaluations" / name


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("multi_label", [False, True])
def test_accents_of_classes_may_have_two_forms(tmp_path, monkeypatch, form, multi_label):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shapes.write(tmp_path / "shapes", 2)
    (folder / "circle").rename(folder / unicodedata.normalize("NFD", "caf\xe9"))
    labels = ("square", "triangle", unicodedata.normalize(form, "caf\xe9"))
    record = SimpleNamespace(name="shapes", shape=(8, 8, 3), labels=labels, multi_label=multi_label)
    config = SimpleNamespace(image_fit="crop", label_separator=None, group="patient")
    run = SimpleNamespace(path="run", config=config, record=SimpleNamespace(data=record))
    found = _other_here(run, str(folder), None, Console(file=io.StringIO())).examples.labels
    found = found.argmax(axis=1) if multi_label else found
    assert np.bincount(found).tolist() == [2, 2, 2]

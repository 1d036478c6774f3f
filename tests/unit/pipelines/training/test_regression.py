import numpy as np
import pytest

from pipelines.core.errors import UserError
from pipelines.training import evaluation
from pipelines.training.regression import Regression, measure
from pipelines.verbs.evaluate import table

TARGETS = np.array([[1.0], [2.0], [3.0], [6.0]], "float32")


def result(predicted, targets=TARGETS, mean=2.0):
    return measure(np.asarray(predicted, "float32"), targets, mean, "final", "toy 1.0.0")


def test_errors_by_hand():
    found = result([[2.0], [2.0], [5.0], [3.0]])
    assert (found.count, found.mae, found.training_mean) == (4, 1.5, 2.0)
    assert found.rmse == pytest.approx(np.sqrt(14 / 4))
    # The squared distances from the mean of training are 1, 0, 1, 16: those from the mean of the test do not count.
    assert found.r2 == pytest.approx(1 - 14 / 18)


def test_r2_is_1_for_what_is_right_0_for_the_mean_of_training_and_below_for_worse():
    assert result(TARGETS).r2 == 1
    assert result(np.full((4, 1), 2.0)).r2 == 0
    assert result(-TARGETS).r2 < 0


def test_targets_without_spread_have_no_r2():
    with pytest.raises(UserError, match=r"all targets of its test split are the mean of training"):
        result(TARGETS, targets=np.full((4, 1), 2.0))


def test_it_comes_back_from_its_file(tmp_path):
    path = tmp_path / "evaluation.json"
    path.write_text(result(-TARGETS).model_dump_json())
    assert evaluation.read(path, Regression) == result(-TARGETS)
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        evaluation.read(path, evaluation.Evaluation)


def test_the_table_shows_the_errors():
    shown = table(result([[2.0], [2.0], [5.0], [3.0]]))
    assert [list(column.cells) for column in shown.columns] == [["4"], ["1.871"], ["1.5"], ["0.2222"]]

import numpy as np
import pytest

from pipelines.core import run
from pipelines.core.config import Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.studies.framework import results
from pipelines.studies.framework.results import Results
from pipelines.training import metrics_file
from tests.unit.pipelines.studies.fake import RECORD, evaluated, result
from tests.unit.pipelines.studies.probed_runs import with_probe

CONFIG = Config(recipe="a", model=ModelConfig(preset="mnist_dense_50"), data="mnist")
ROWS = [{"step": 0, "norm": 1.0}, {"step": 46, "norm": 0.25}]


def runs(path, *tables):
    return Results(
        with_probe(result("a", CONFIG, seed, None if rows is None else 0.9, path), rows or ROWS[:1])
        for seed, rows in enumerate(tables)
    )


def test_probed_columns(tmp_path):
    other = [{**row, "norm": row["norm"] / 2} for row in ROWS]
    # The second run diverged.
    found = runs(tmp_path, ROWS, None, other).probed("a")
    assert found["step"].tolist() == [0, 46]
    np.testing.assert_array_equal(found["norm"], [[1, 0.25], [0.5, 0.125]])


def test_diverged_nets_have_no_probe(tmp_path):
    assert runs(tmp_path, None, None).probed("a") == {}


@pytest.mark.parametrize("rows", [ROWS[:1], []])
def test_a_run_with_missing_probes_is_reported(tmp_path, rows):
    results = runs(tmp_path, ROWS, ROWS[:1])
    path = results.of("a")[1].run.path
    if not rows:
        (path / "watched.csv").unlink()
    with pytest.raises(UserError, match=rf"{path}/watched.csv lacks some .* Remove {path} and repeat"):
        results.probed("a")


@pytest.fixture
def evaluated_run(tmp_path):
    """The run directory of a run that another study has evaluated."""
    path = tmp_path / "runs" / "a-seed-0"
    scores = {"loss": 0.5, "accuracy": 0.8, "val_loss": 0.6, "val_accuracy": 0.75}
    run.create(path, CONFIG, RECORD.model_copy(update={"metrics": scores}))
    metrics_file.append(path / "metrics.csv", {"epoch": 1, "step": 46, "seconds": 30.0, **scores})
    (path / "evaluation.json").write_text(evaluated(0.9).model_dump_json())
    return path


def test_a_study_that_only_chooses_shows_no_test_accuracy(tmp_path, evaluated_run):
    found = results.read([("a", 0, evaluated_run)], tested=False)
    row = found.rows(tmp_path)[0]
    assert not [name for name in row if name.startswith("test_")]
    assert (row["state"], row["val_loss"], row["val_accuracy"]) == ("finished", "0.6", "0.75")
    # It has not diverged.
    assert found.curves("a", "val_accuracy").tolist() == [[0.75]]
    assert not found.lost("a")
    tested = results.read([("a", 0, evaluated_run)])
    assert tested.accuracies("a") == [0.9]
    assert "val_accuracy" not in tested.rows(tmp_path)[0]

import csv
import io

import pytest
from rich.console import Console

from pipelines.core import run
from pipelines.tuning import retrain as module
from tests.toy_data import toy_config
from tests.unit.pipelines.studies.fake import RECORD

from .plans import ACCURACY


@pytest.fixture
def retrained(tmp_path, monkeypatch):
    """A function that retrains a winner with one seed per state given, and returns output and rows."""

    def retrained(*states):
        def train_all(members, **_):
            for member, state in zip(members, states, strict=True):
                # The best epoch of a run is recorded before it diverges.
                metrics = {"best_val_accuracy": 0.8 if state == "finished" else 0.3, "best_epoch": 2.0}
                record = RECORD.model_copy(update={"state": state, "metrics": metrics})
                run.create(member.task.folder, member.task.config, record)

        monkeypatch.setattr(module, "train_all", train_all)
        recipe, console = tmp_path / "toy.json", Console(file=io.StringIO(), width=200)
        recipe.write_text(toy_config().model_dump_json())
        path = module.retrain(
            {"toy": recipe}, tmp_path, seeds=len(states), workers=1, data_dir=None, objective=ACCURACY, console=console
        )
        with path.open(newline="") as file:
            return console.file.getvalue(), [*csv.DictReader(file)]

    return retrained


def test_a_run_that_diverged_has_no_score(retrained):
    output, rows = retrained("diverged", "finished", "finished")
    assert "best validation accuracy 80.00% ± 0.00 (n = 2 of 3, seeds from 1)" in output
    assert [(row["best_val_accuracy"], row["best_epoch"]) for row in rows] == [("", ""), ("0.8", "2.0"), ("0.8", "2.0")]


def test_without_a_score_the_reason_is_named(retrained):
    output, _ = retrained("diverged", "diverged")
    assert "none: every run diverged (n = 0 of 2, seeds from 1)" in output

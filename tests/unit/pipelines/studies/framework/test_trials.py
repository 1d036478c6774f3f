import json
from dataclasses import asdict

import pytest

from pipelines.core.errors import UserError
from pipelines.studies.framework.trials import read
from pipelines.studies.papers.optimization import STUDY
from pipelines.studies.run.budget import reduced
from pipelines.studies.run.training import planned
from pipelines.tuning.ask_tell import Clock
from pipelines.tuning.search_plan import SEARCH_FILE
from tests.unit.pipelines.studies.fake import RECORD

DRAWN = {"learning_rate": 0.25, "momentum": 0.5, "decay": 0.9, "activation": "relu", "transform_bias": -2.5}


@pytest.fixture
def folder(tmp_path):
    """The folder of a study with its search, as it is left at its end."""
    plan = planned(STUDY, reduced(STUDY.arms, STUDY.seeds, 1e-6))
    search = tmp_path / "search"
    SEARCH_FILE.keep(plan, search)
    trials = []
    for number, (net, score, message) in enumerate(
        [("highway-10", 0.9, None), ("plain-20", 0.8, None), ("plain-50", None, "no luck"), ("plain-100", None, "lost")]
    ):
        values = {**DRAWN, "net": net, "tuner/search": plan.fingerprint}
        status = "COMPLETED" if score else "FAILED"
        trials.append(
            {"trial_id": str(number), "status": status, "score": score, "message": message}
            | {"hyperparameters": {"values": values}}
        )
        if message == "lost":
            continue
        run = search / "trials" / str(number)
        run.mkdir(parents=True)
        (run / "config.json").write_text(plan.configured(values).model_dump_json())
        (run / "run.json").write_text(RECORD.model_dump_json())
        (run / "metrics.csv").write_text("epoch,loss\n1,2.5\n" + ("2,0.5\n" if score else ""))
    clock = {str(number): asdict(Clock("worker-0", 0.0, 7.0)) for number in range(4)}
    state = {"objective": {"name": "val_accuracy", "direction": "max"}, "over": True, "trials": trials, "clock": clock}
    (search / "oracle.json").write_text(json.dumps(state))
    return tmp_path


def test_the_trials_of_a_search(folder):
    trials = read(folder / "search")
    assert [one.arm for one in trials.all] == ["highway-10", "plain-20", "plain-50", "plain-100"]
    assert trials.all[0].losses.tolist() == [2.5, 0.5]
    assert (trials.all[0].loss, trials.all[0].score, trials.all[0].reason) == (0.5, 0.9, "")
    assert trials.reasons("plain-50") == ["no luck"]
    assert trials.ranked("plain-50") == []
    # In a net without gates, their bias has no effect.
    assert set(DRAWN) - set(trials.all[1].values) == {"transform_bias"}
    assert set(trials.all[0].values) == set(DRAWN)


def test_a_row_for_each_setting_with_what_was_drawn(folder):
    rows = read(folder / "search").rows(folder)
    assert len({tuple(row) for row in rows}) == 1
    first = rows[0]
    assert (first["arm"], first["trial"], first["state"], first["loss"]) == ("highway-10", "0", "finished", "0.5")
    assert (first["learning_rate"], first["activation"], first["transform_bias"]) == ("0.25", "relu", "-2.5")
    assert (first["epochs"], first["seconds"], first["run"]) == ("2", "7.0", "search/trials/0")
    assert (rows[1]["transform_bias"], rows[1]["best_val_accuracy"]) == ("", "0.8")
    assert (rows[2]["state"], rows[2]["loss"], rows[2]["reason"], rows[2]["epochs"]) == ("failed", "", "no luck", "1")


def test_a_setting_whose_processes_died_before_it_began_counts(folder):
    trials = read(folder / "search")
    assert len(trials.runs) == 3
    assert trials.reasons("plain-100") == ["lost"]
    row = trials.rows(folder)[3]
    assert (row["state"], row["epochs"], row["run"]) == ("failed", "0", "")


def test_a_search_that_is_not_over_is_refused(folder):
    path = folder / "search" / "oracle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "over": False}))
    with pytest.raises(UserError, match=r"is not finished\. Repeat the command"):
        read(folder / "search")

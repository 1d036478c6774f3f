"""Runs of other studies are found and copied; a search is planned over all nets."""

import io
from pathlib import Path

import keras
import pytest
from rich.console import Console

from pipelines import studies
from pipelines.core import run
from pipelines.core.errors import UserError
from pipelines.core.ownership import claim
from pipelines.core.run import MEASURED
from pipelines.core.sync import synced
from pipelines.studies.papers import depth_contrast
from pipelines.studies.papers.optimization import STUDY
from pipelines.studies.run import reproduce, training
from pipelines.studies.run.budget import reduced
from pipelines.studies.run.study_plan import STUDY_FILE, StudyPlan, search_folder
from pipelines.studies.run.training import Machines, planned
from pipelines.tuning import space
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.driver import drive
from pipelines.tuning.search_plan import SEARCH_FILE
from tests.toy_data import toy_config
from tests.unit.pipelines.core.runs_in_memory import contents, place
from tests.unit.pipelines.studies.fake import RECORD, evaluated
from tests.unit.pipelines.tuning.in_memory import InMemory
from tests.unit.pipelines.tuning.plans import ACCURACY


def made(study, name, config, record=RECORD, done=True):
    """Writes a run into the folder of a study and returns its path."""
    path = study / "runs" / name
    run.create(path, config, record)
    (path / MEASURED).touch()
    (path / "model.keras").write_text("weights")
    if done:
        (path / "evaluation.json").write_text(evaluated(0.9).model_dump_json())
        (path / "report.md").touch()
    (study / STUDY_FILE.name).touch()
    return path


@pytest.fixture
def other(tmp_path):
    return tmp_path / "other"


def found(tmp_path, config, backend="tensorflow", weights="final"):
    return training.find(config, weights, backend, tmp_path / "mine")


def test_a_run_of_another_study_is_found_and_copied(tmp_path, other):
    config = toy_config(seed=3)
    path = made(other, "arm-seed-3", config)
    assert found(tmp_path, config) == path
    to = tmp_path / "mine" / "runs" / "mine-seed-3"
    training.copy(path, to)
    assert run.open_run(to).config == config
    assert (to / "model.keras").read_text() == "weights"
    # The measurements of the other study are not those of this one.
    assert not (to / MEASURED).exists()
    assert [each.name for each in to.parent.iterdir()] == ["mine-seed-3"]
    assert (path / MEASURED).exists()


def test_runs_on_a_cluster_read_the_data_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    study, members = depth_contrast.STUDY, []
    monkeypatch.setattr(training, "train_all", lambda given, **_: members.extend(given))
    training.train_runs(
        study, reduced(study.arms, 1, 1.0), tmp_path / "mine", "tensorflow", data_dir=Path("~/data"),
        machines=training.Machines(cluster="auto"), console=Console(file=io.StringIO()),
    )  # fmt: skip
    assert {member.task.data_dir for member in members} == {tmp_path / "data"}


def test_a_run_of_an_arm_that_has_changed_since_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "train_runs", lambda *_, **__: pytest.fail("a run was trained"))
    # Also of an arm that is not asked for, as the page reports it.
    study, (arm, *_, asked) = depth_contrast.STUDY, depth_contrast.STUDY.arms
    config = study.arms[arm].config.seeded(0, study.draws)
    path = made(tmp_path / "mine", f"{arm}-seed-0", config.model_copy(update={"epochs": 7}))
    plan = StudyPlan(
        study=study.name, schedule="full", budget=1.0, backend=keras.backend.backend(),
        arms=dict(reduced(study.arms, study.seeds, 1.0).arms),
    )  # fmt: skip
    (tmp_path / "mine" / STUDY_FILE.name).write_text(plan.model_dump_json())
    with pytest.raises(
        UserError, match=rf"{path} was trained with epochs 7, and this study now has {config.epochs}\. "
    ):
        reproduce.reproduce(study.name, to=tmp_path / "mine", arms=[asked], console=Console(file=io.StringIO()))


def test_a_run_that_diverged_is_a_result(tmp_path, other):
    path = made(other, "arm-seed-0", toy_config(), RECORD.model_copy(update={"state": "diverged"}), done=False)
    assert found(tmp_path, toy_config()) == path


def test_a_run_that_was_not_evaluated_is_evaluated_by_the_study_that_needs_it(tmp_path, other):
    path = made(other, "arm-seed-0", toy_config())
    (path / "evaluation.json").unlink()
    assert found(tmp_path, toy_config()) == path


@pytest.mark.parametrize("name", ["conv-gate", "modern"])
def test_runs_that_only_choose_are_not_evaluated_on_test_images(tmp_path, name):
    full = studies.get(name)
    for study in (full, full.short):
        arm, one = next(iter(study.arms.items()))
        task = training.task_of(study, reduced({arm: one}, 1, 1.0), tmp_path, arm, 0)
        assert task.evaluate == study.tested == (study is full)


def test_the_line_of_a_run_that_is_not_evaluated_has_its_held_out_accuracy(tmp_path, other):
    path = made(other, "arm-seed-0", toy_config(), RECORD.model_copy(update={"metrics": {"val_accuracy": 0.875}}))
    assert training._chosen_by(run.open_run(path)) == "87.50% of held-out examples, 0:30 of training"


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (toy_config(epochs=9), {}),
        (toy_config(seed=1), {}),
        (toy_config(), {"backend": "jax"}),
        (toy_config(), {"weights": "best"}),
    ],
    ids=["another training", "another seed", "another backend", "other weights evaluated"],
)
def test_another_run_is_not_reused(tmp_path, other, config, changes):
    made(other, "arm-seed-0", toy_config())
    assert found(tmp_path, config, **changes) is None


def test_unfinished_damaged_and_foreign_folders_are_skipped(tmp_path, other):
    made(other, "arm-seed-0", toy_config(), done=False)
    made(other, "damaged-seed-0", toy_config())
    (other / "runs" / "damaged-seed-0" / "run.json").write_text("{")
    made(tmp_path / "mine", "arm-seed-0", toy_config())
    (made(tmp_path / "none", "arm-seed-0", toy_config()).parents[1] / STUDY_FILE.name).unlink()
    assert found(tmp_path, toy_config()) is None


def test_nothing_is_left_of_a_copy_that_fails(tmp_path, other, monkeypatch):
    path = made(other, "arm-seed-0", toy_config())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "flush", full)
    to = tmp_path / "mine" / "runs" / "arm-seed-0"
    with pytest.raises(OSError, match="No space"):
        training.copy(path, to)
    assert list(to.parent.iterdir()) == []


def test_the_whole_search_is_the_papers():
    plan = planned(STUDY, reduced(STUDY.arms, STUDY.seeds, 1.0))
    assert (plan.trials, plan.config.epochs, plan.algorithm, plan.label) == (800, 40, "random", "")
    assert {net.name: net.model for net in plan.nets} == {name: arm.config.model for name, arm in STUDY.arms.items()}
    space.check(plan.space, plan.config)


def test_a_budget_takes_from_settings_epochs_and_examples():
    work = reduced(STUDY.arms, STUDY.seeds, 0.01, each="settings of each net", tested=False)
    assert work.label == (
        "short schedule, budget 0.01: 9 of 40 epochs, 11,111 of 55,000 training examples, "
        "22 of 100 settings of each net"
    )
    plan = planned(STUDY, work)
    assert plan.trials == 22 * 8
    assert (plan.config.epochs, plan.config.subset.train, plan.config.validation) == (9, 11_111, 1010)
    # Over the run, the rate falls as far as in the full study.
    config = plan.configured({"net": "plain-10", "learning_rate": 0.1, "decay": 0.5})
    assert 9 * 111 / config.schedule.decay_steps == pytest.approx(40, rel=0.05)
    assert config.schedule.factor == 0.5


def test_a_study_without_a_search_has_none():
    study = depth_contrast.STUDY
    with pytest.raises(ValueError, match="depth-contrast draws no settings"):
        planned(study, reduced(study.arms, 3, 1.0))


def test_weights_that_a_killed_search_left_at_a_url_are_removed():
    url, console = place(), Console(file=io.StringIO())
    scope = reduced(STUDY.arms, STUDY.seeds, 0.0004)
    with synced(url) as folder:
        search = search_folder(folder)
        SEARCH_FILE.keep(planned(STUDY, scope), search)
        drive(AskTell(planned(STUDY, scope), ACCURACY, search), InMemory(lambda task: 0.5))
        weights = (search / "trials" / "00" / "model.keras").relative_to(folder).as_posix()
    (url / weights).write_bytes(b"1")
    with synced(url, owned=True) as folder:
        training.search_settings(STUDY, scope, folder, data_dir=None, machines=Machines(), console=console)
        claim(folder)
    assert weights not in contents(url)

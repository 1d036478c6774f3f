import io

import pytest
from rich.console import Console

from pipelines import studies
from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.core.run import create
from pipelines.studies.framework import results
from pipelines.studies.run import page, reproduce
from pipelines.studies.run.task import StudyTask
from tests.unit.pipelines.studies.fake import RECORD


@pytest.fixture
def choose(monkeypatch):
    """A function that chooses a schedule on a machine with these devices, and returns it with the output."""

    def run(name, asked, devices):
        monkeypatch.setattr(environment, "devices", lambda: devices)
        out = io.StringIO()
        study, schedule = reproduce.chosen(name, asked, Console(file=out, width=200))
        return study, schedule, out.getvalue()

    return run


@pytest.mark.parametrize(
    ("asked", "devices", "taken"),
    [
        (None, [], "short"),
        (None, ["nvidia0"], "full"),
        ("full", [], "full"),
        ("short", ["nvidia0"], "short"),
    ],
)
def test_a_cpu_takes_the_short_schedule_unless_another_is_asked_for(choose, asked, devices, taken):
    study, schedule, output = choose("cifar10", asked, devices)
    whole = studies.get("cifar10")
    assert (study, schedule) == (whole.short if taken == "short" else whole, taken)
    message = "there is no GPU or TPU: the short schedule of cifar10; the full one with --schedule full\n"
    assert output == (message if (asked, devices) == (None, []) else "")


@pytest.mark.parametrize("asked", [None, "full"])
def test_a_study_with_one_schedule_is_run_in_full(choose, asked):
    assert choose("mnist", asked, []) == (studies.get("mnist"), "full", "")


def test_a_missing_schedule_is_refused(choose):
    with pytest.raises(UserError, match=r"mnist has no short schedule\. Leave --schedule out"):
        choose("mnist", "short", [])


def test_requested_arms_are_run_in_the_order_of_the_study():
    study = studies.get("fitnets")
    assert reproduce._asked(study, ()) == ["highway-a", "highway-b", "highway-c"]
    assert reproduce._asked(study, ("highway-c", "highway-a")) == ["highway-a", "highway-c"]
    with pytest.raises(UserError, match=r"there is no arm of fitnets 'highway-d'\. Did you mean 'highway-"):
        reproduce._asked(study, ("highway-d",))


def test_the_page_has_the_nets_of_earlier_commands_in_the_same_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(StudyTask, "done", property(lambda task: task.folder.exists()))
    study, written = studies.get("fitnets"), []

    def train(study, scope, folder, *__, **___):
        for arm in scope.arms:
            create(folder / "runs" / f"{arm}-seed-0", scope.arms[arm].seeded(0, study.draws), RECORD)

    monkeypatch.setattr(reproduce, "train_runs", train)
    monkeypatch.setattr(results, "read", lambda runs, **_: [arm for arm, *_ in runs])
    monkeypatch.setattr(page, "write", lambda folder, study, found, label: written.append(found))
    for arm in ("highway-c", "highway-a"):
        reproduce.reproduce(
            study.name, tmp_path / "study", seeds=1, schedule="full", arms=[arm], console=Console(file=io.StringIO())
        )
    assert written == [["highway-c"], ["highway-a", "highway-c"]]


def test_a_search_is_over_all_nets():
    with pytest.raises(UserError, match="optimization is one search over all its nets"):
        reproduce._asked(studies.get("optimization"), ("plain-10",))

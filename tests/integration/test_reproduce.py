"""`highway reproduce` on toy digits at a tiny budget: stopped, killed and resumed; and the page that it writes."""

import csv
import json
import re
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from pipelines import studies
from pipelines.studies.run.step_timing import measured
from pipelines.studies.run.study_plan import STUDY_FILE
from pipelines.tuning import search_state as states
from pipelines.verbs.cli import main
from tests.finished_study import BUDGET, assert_complete, label_of, prepare
from tests.pages import unwrapped
from tests.shallow_study import shallow
from tests.toy_data import ToyData, toy_config

SEARCHES = [name for name in studies.names() if studies.get(name).search]
"""The studies whose settings are drawn at random."""


@pytest.fixture(scope="module")
def toy(shared):
    return shared("studied", prepare)


@pytest.fixture
def start(toy, tmp_path, monkeypatch, started):
    """A function that starts `highway reproduce`."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(toy))

    def run(*words, program=("-m", "pipelines")):
        return started(tmp_path, *program, "reproduce", *words)

    return run


def running_processes(folder):
    """Returns the processes that train runs of a study, found by the task on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            task = json.loads(path.read_bytes().decode().split("\0")[3])
        except (OSError, IndexError, ValueError):
            continue
        if isinstance(task, dict) and str(folder) in str(task.get("folder")):
            found.append(int(path.parent.name))
    return found


def evaluation_times(folder):
    """Returns the time of the evaluation of each evaluated run."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/evaluation.json")}


def complete_runs(folder):
    """Returns the number of complete runs: those with a result, which is written last."""
    return len(evaluation_times(folder))


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def refused(capsys, *words):
    """Returns the error of a command that is refused."""
    assert main(["reproduce", *words]) == 2
    return capsys.readouterr().err


def all_end(folder):
    """Returns True if all processes of a study end by themselves, as they do once their parent has died."""
    deadline = time.monotonic() + 60
    while running_processes(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return running_processes(folder) == []


@pytest.mark.slow
def test_a_study_is_killed_and_resumed(start, tmp_path):
    name, arm, folder = "bias", "10-layers-bias-2", tmp_path / "study"
    words = (name, "--budget", BUDGET, "--arms", arm, "--to", str(folder))
    study = start(*words)
    wait_until((folder / "runs" / f"{arm}-seed-0" / "config.json").exists, study)
    study.kill()
    assert all_end(folder)

    study = start(*words)
    output = study.communicate()[0]
    assert study.returncode == 0, output
    assert f"1 run ({label_of(studies.get(name))})" in output
    assert_complete(folder, studies.get(name), (arm,))


@pytest.mark.slow
def test_a_study_is_stopped_killed_and_resumed(start, tmp_path, capsys):
    name = "depth-contrast"
    folder = tmp_path / "study"
    arms = ("highway-5", "highway-10", "highway-20", "plain-5", "plain-10")
    words = (name, "--budget", BUDGET, "--workers", "2", "--to", str(folder), "--arms", *arms)
    label = label_of(studies.get(name))

    study = start(*words)
    wait_until(lambda: complete_runs(folder), study)
    study.terminate()
    output = study.communicate()[0]
    assert study.returncode == 128 + signal.SIGTERM, output
    assert f"{name} in {folder}: {len(arms)} runs ({label})" in output
    assert "SIGTERM: every process saves and ends; a second signal ends at once" in output
    assert "highway reproduce: stopped; repeat the command to continue" in output
    assert "Traceback" not in output
    assert running_processes(folder) == []

    with STUDY_FILE.locked(folder):
        assert "another process reproduces a study in" in refused(capsys, *words)

    before = complete_runs(folder)
    study = start(*words)
    wait_until(lambda: complete_runs(folder) > before, study)
    study.kill()
    assert all_end(folder)

    before, whole = evaluation_times(folder), complete_runs(folder)
    study = start(*words)
    output = study.communicate()[0]
    assert study.returncode == 0, output
    assert f"{len(arms)} runs, {whole} of them done" in output
    left = len(arms) - whole
    assert f"; {left} of {left} runs\n" in output
    after = evaluation_times(folder)
    assert len(after) == len(arms)
    # Only runs that were being evaluated when their process was stopped or killed may have changed.
    assert sum(after[path] != when for path, when in before.items()) <= 4
    assert_complete(folder, studies.get(name), arms)

    # A finished study only gets a new page, without a process.
    (folder / "README.md").unlink()
    assert main(["reproduce", *words]) == 0
    assert f"{len(arms)} runs, {len(arms)} of them done" in capsys.readouterr().out
    assert evaluation_times(folder) == after
    assert_complete(folder, studies.get(name), arms)
    other = refused(capsys, name, "--budget", "0.0001", "--to", str(folder))
    assert "is another one: its budget was 1e-06 and is 0.0001" in other


def finished_trials(folder):
    """Returns the finished trials of the search of a study."""
    state = states.read(folder / "search")
    return [trial for trial in state.trials if trial.over] if state else []


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_a_study_with_a_search_is_stopped_killed_and_resumed(start, tmp_path, capsys, monkeypatch, name):
    # One worker: tests/integration/test_tune.py kills searches with several.
    start = partial(start, program=("-m", "tests.shallow_study"))
    folder, budget = tmp_path / "study", "1e-06"
    words = (name, "--budget", budget, "--to", str(folder))
    defined = studies.get(name).arms
    arms = list(defined)

    study = start(*words)
    wait_until(lambda: finished_trials(folder), study)
    study.terminate()
    output = study.communicate()[0]
    assert study.returncode == 128 + signal.SIGTERM, output
    label = re.search(rf"{name} in {folder}: {len(arms)} settings \((short schedule, budget {budget}: .*)\)", output)[1]
    assert "highway reproduce: stopped; repeat the command to continue" in output
    assert "Traceback" not in output
    assert running_processes(folder) == []

    before = finished_trials(folder)
    study = start(*words)
    wait_until(lambda: len(finished_trials(folder)) > len(before), study)
    study.kill()
    assert all_end(folder)

    before = finished_trials(folder)
    study = start(*words)
    output = study.communicate()[0]
    assert study.returncode == 0, output
    assert f"{len(arms)} settings, {len(before)} of them done" in output
    after = finished_trials(folder)
    assert all(trial in after for trial in before)
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == arms
    assert {row["schedule"] for row in rows} == {label}
    assert {row["state"] for row in rows} <= {"finished", "failed"}
    assert all((row["state"] == "failed") == bool(row["reason"]) for row in rows)
    page = (folder / "README.md").read_text()
    shown = re.findall(r"^!\[.*\]\((.*)\)$", page, re.MULTILINE)
    assert shown
    assert all((folder / figure).stat().st_size > 3000 for figure in shown)
    # Under every figure and every table except "How it was made".
    assert unwrapped(page).count(label) == len(shown) + page.count("\n\n|") - 1
    assert f"reproduce {name} --budget {budget}" in page
    assert not list(folder.rglob(".*"))

    # A finished search only gets a new page, without a process.
    for arm, changed in shallow(defined).items():
        monkeypatch.setitem(defined, arm, changed)
    (folder / "README.md").unlink()
    assert main(["reproduce", *words]) == 0
    assert f"{len(arms)} settings, {len(arms)} of them done" in capsys.readouterr().out
    assert finished_trials(folder) == after
    assert (folder / "README.md").exists()
    for other, message in (
        (("--budget", "0.1"), f"is another one: its budget was {budget} and is 0.1"),
        (("--seeds", "3"), "draws settings in place of seeds. Leave --seeds out"),
    ):
        assert message in refused(capsys, name, *other, "--to", str(folder))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which study? highway reproduce NAME. Choices: depth-contrast"),
        ("depth_contrast", "there is no study 'depth_contrast'. Did you mean 'depth-contrast'?"),
        ("depth-contrast --list", "--list takes no study. Did you mean: highway reproduce depth-contrast"),
        ("depth-contrast --schedule short", "depth-contrast has no short schedule. Leave --schedule out"),
        (
            "depth-contrast --cluster auto --workers 2",
            "--workers is for this machine. A cluster trains as many runs as",
        ),
        ("depth-contrast --budget 2", "--budget must be a number greater than 0 and at most 1. Received: '2'."),
    ],
)
def test_a_user_error_is_one_message_and_leaves_nothing(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *words.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bias", "optimization"])
def test_missing_data_is_one_message_and_leaves_nothing(start, tmp_path, name):
    study = start(name, "--data-dir", "no/such", "--to", "new/study")
    output = study.communicate()[0]
    assert study.returncode == 2
    assert "there is no folder 'no/such' (--data-dir)" in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_steps_are_timed_without_writing_files(monkeypatch, tmp_path):
    ToyData().install(monkeypatch)
    monkeypatch.setattr("pipelines.data.catalog.find", lambda *_: object())
    monkeypatch.setattr("pipelines.studies.run.step_timing.SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    began = time.time()
    found = measured(toy_config(), None, began)
    assert 0 < found.step < found.start < time.time() - began
    assert list(tmp_path.iterdir()) == []

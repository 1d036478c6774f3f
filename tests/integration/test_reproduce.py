"""`highway reproduce` on toy digits, at a tiny budget: stopped, killed, gone on with, and the page it makes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines import studies
from pipelines.studies.run import study_plan
from pipelines.studies.run.step_timing import measured
from pipelines.tuning import search_state as states
from tests.studied import BUDGET, assert_complete, label_of, prepare
from tests.toy_data import ToyData, toy_config

ROOT = Path(__file__).parents[2]
DRAWN = [name for name in studies.names() if studies.get(name).search]
"""The studies whose settings are drawn at random."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("data_sets"))


@pytest.fixture
def start(toy, tmp_path):
    """A function that starts `highway reproduce`; whatever still runs at the end of the test is killed."""
    running = []

    def run(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines", "reproduce", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow", "TFDS_DATA_DIR": str(toy)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def working(folder):
    """The processes that train runs of a study: what they do stands in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            task = json.loads(path.read_bytes().decode().split("\0")[3])
        except (OSError, IndexError, ValueError):
            continue
        if isinstance(task, dict) and str(folder) in str(task.get("folder")):
            found.append(int(path.parent.name))
    return found


def evaluated(folder):
    """When each run that is done was measured."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/evaluation.json")}


def done(folder):
    """How many runs are whole: their report, which is written last, is there too."""
    reports = {path: path.with_name("report.md") for path in evaluated(folder)}
    return sum(report.exists() and report.stat().st_mtime >= path.stat().st_mtime for path, report in reports.items())


def until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def ended(folder):
    """Whether all its processes have ended by themselves, as they do without the one that started them."""
    deadline = time.monotonic() + 60
    while working(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return working(folder) == []


def test_a_study_is_stopped_killed_and_gone_on_with(start, tmp_path):
    name = "depth-contrast"
    folder = tmp_path / "study"
    words = (name, "--budget", BUDGET, "--workers", "2", "--to", str(folder))
    arms = studies.get(name).arms
    label = label_of(studies.get(name))

    study = start(*words)
    until(lambda: done(folder), study)
    study.terminate()
    said = study.communicate()[0]
    assert study.returncode == 128 + signal.SIGTERM, said
    assert f"{name} in {folder}: {len(arms)} runs ({label})" in said
    assert "SIGTERM: every process saves and ends; a second signal ends at once" in said
    assert "highway reproduce: stopped; repeat the command to continue" in said
    assert "Traceback" not in said
    assert working(folder) == []

    with study_plan.locked(folder):
        second = start(*words)
        assert "another process reproduces a study in" in second.communicate()[0]
    assert second.returncode == 2

    before = done(folder)
    study = start(*words)
    until(lambda: done(folder) > before, study)
    study.kill()
    assert ended(folder)

    before, whole = evaluated(folder), done(folder)
    study = start(*words)
    said = study.communicate()[0]
    assert study.returncode == 0, said
    assert f"{len(arms)} runs, {whole} of them done" in said
    left = len(arms) - whole
    assert f"; {left} of {left} runs\n" in said
    after = evaluated(folder)
    assert len(after) == len(arms)
    # All but those that were being measured when their process was stopped or killed are as they were.
    assert sum(after[path] != when for path, when in before.items()) <= 4
    assert_complete(folder, studies.get(name))

    # A study that is over is summed up again, without any process.
    again = start(*words)
    assert f"{len(arms)} runs, {len(arms)} of them done" in again.communicate()[0]
    assert evaluated(folder) == after
    other = start(name, "--budget", "0.0001", "--to", str(folder))
    assert "is another one: its budget was 1e-06 and is 0.0001" in other.communicate()[0]
    assert other.returncode == 2


def tried(folder):
    """The settings of a study that are over."""
    state = states.read(folder / "search")
    return [trial for trial in state.trials if trial.over] if state else []


@pytest.mark.parametrize("name", DRAWN)
def test_a_study_that_draws_settings_is_stopped_killed_and_gone_on_with(start, tmp_path, name):
    folder, budget = tmp_path / "study", "1e-06"
    words = (name, "--budget", budget, "--workers", "2", "--to", str(folder))
    arms = list(studies.get(name).arms)

    study = start(*words)
    until(lambda: tried(folder), study)
    study.terminate()
    said = study.communicate()[0]
    assert study.returncode == 128 + signal.SIGTERM, said
    label = re.search(rf"{name} in {folder}: {len(arms)} settings \((short schedule, budget {budget}: .*)\)", said)[1]
    assert "highway reproduce: stopped; repeat the command to continue" in said
    assert "Traceback" not in said
    assert working(folder) == []

    before = tried(folder)
    study = start(*words)
    until(lambda: len(tried(folder)) > len(before), study)
    study.kill()
    assert ended(folder)

    before = tried(folder)
    study = start(*words)
    said = study.communicate()[0]
    assert study.returncode == 0, said
    assert f"{len(arms)} settings, {len(before)} of them done" in said
    after = tried(folder)
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
    assert all((folder / picture).stat().st_size > 3000 for picture in shown)
    # Under every figure and every table, but not that of how all was made.
    assert page.count(label) == len(shown) + page.count("\n\n|") - 1
    assert f"reproduce {name} --budget {budget}" in page
    assert not list(folder.rglob(".*"))

    # A search that is over is summed up again, without any process.
    again = start(*words)
    assert f"{len(arms)} settings, {len(arms)} of them done" in again.communicate()[0]
    assert tried(folder) == after
    for other, told in (
        (("--budget", "0.1"), f"is another one: its budget was {budget} and is 0.1"),
        (("--seeds", "3"), "draws settings in place of seeds. Leave --seeds out"),
    ):
        refused = start(name, *other, "--to", str(folder))
        assert told in refused.communicate()[0]
        assert refused.returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "which study? highway reproduce NAME. Choices: depth-contrast"),
        ("depth_contrast", "there is no study 'depth_contrast'. Did you mean 'depth-contrast'?"),
        ("depth-contrast --list", "--list takes no study. Did you mean: highway reproduce depth-contrast"),
        ("depth-contrast --schedule short", "depth-contrast has no short schedule. Leave --schedule out"),
        ("depth-contrast --budget 2", "--budget must be a number greater than 0 and at most 1. Received: '2'."),
        ("depth-contrast --data-dir no/such --to study", "there is no folder 'no/such' (--data-dir)"),
        ("optimization --data-dir no/such --to study", "there is no folder 'no/such' (--data-dir)"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(start, tmp_path, words, told):
    study = start(*words.split())
    said = study.communicate()[0]
    assert study.returncode == 2
    assert told in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_net_is_measured_without_writing_anything(monkeypatch, tmp_path):
    ToyData().install(monkeypatch)
    monkeypatch.setattr("pipelines.data.catalog.find", lambda *_: object())
    monkeypatch.setattr("pipelines.studies.run.step_timing.SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    began = time.time()
    found = measured(toy_config(), None, began)
    assert 0 < found.step < found.start < time.time() - began
    assert list(tmp_path.iterdir()) == []

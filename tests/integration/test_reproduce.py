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
import tensorflow_datasets as tfds

from pipelines import studies
from pipelines.reproducing import plan as plans
from pipelines.reproducing.budget import scheduled
from pipelines.reproducing.measure import measured
from tests.toy_data import ToyData, toy_config

ROOT = Path(__file__).parents[2]
BUDGET = "0.0001"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder of data sets in which the toy data lies prepared as MNIST."""
    root = tmp_path_factory.mktemp("data_sets")
    source = ToyData(side=28, validation=False)
    source.counts = {"train": 300, "test": 120}

    class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.1")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {split: self._generate_examples(split) for split in source.counts}

        def _generate_examples(self, split):
            examples = source.load("toy", split)
            for number, (image, label) in enumerate(zip(examples.images, examples.labels, strict=True)):
                yield number, {"image": image, "label": int(label)}

    Mnist(data_dir=root).download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    return root


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


def label(name):
    """What stands on every table and figure."""
    study = studies.get(name)
    return scheduled(study.arms, study.seeds, float(BUDGET)).label


def complete(folder, name, arms):
    """What a study leaves that came to its end."""
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == list(arms)
    assert {(row["state"], row["test_examples"], row["schedule"]) for row in rows} == {("finished", "100", label(name))}
    page = (folder / "README.md").read_text()
    # Below every table but the last, which tells how the page was made, and every figure.
    assert page.count(label(name)) >= page.count("\n| --- ") - 1 + page.count("![")
    assert f"reproduce {name} --budget {BUDGET}" in page
    shown = [line.partition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert shown
    assert all((folder / picture).stat().st_size > 3000 for picture in shown)
    assert not list(folder.rglob(".*"))
    # Whatever was killed while it was measured is measured again, with all that belongs to it.
    assert len(list(folder.glob("runs/*/figures/confusion.png"))) == len(arms)
    assert all("test split" in path.read_text() for path in folder.glob("runs/*/report.md"))


@pytest.mark.parametrize("name", studies.names())
def test_a_study_is_stopped_killed_and_gone_on_with(start, tmp_path, name):
    folder = tmp_path / "study"
    words = (name, "--budget", BUDGET, "--workers", "2", "--to", str(folder))
    arms = studies.get(name).arms

    study = start(*words)
    until(lambda: evaluated(folder), study)
    study.terminate()
    said = study.communicate()[0]
    assert study.returncode == 128 + signal.SIGTERM, said
    assert f"{name} in {folder}: {len(arms)} runs ({label(name)})" in said
    assert "SIGTERM: every process saves and ends; once more ends at once" in said
    assert "highway reproduce: stopped; repeat the command to go on" in said
    assert "Traceback" not in said
    assert working(folder) == []

    with plans.locked(folder):
        second = start(*words)
        assert "another process reproduces a study in" in second.communicate()[0]
    assert second.returncode == 2

    before = evaluated(folder)
    study = start(*words)
    # The only run of a study may be evaluated already, and lack what else is measured of it.
    until(lambda: len(before) == len(arms) or len(evaluated(folder)) > len(before), study)
    study.kill()
    assert ended(folder)

    before = evaluated(folder)
    study = start(*words)
    said = study.communicate()[0]
    assert study.returncode == 0, said
    told = re.search(rf"{len(arms)} runs, (\d+) of them done", said)
    # Those that are evaluated need not be measured yet, and are not done.
    left = len(arms) - (int(told[1]) if told else 0)
    assert not left or f"; {left} of {left} runs\n" in said
    after = evaluated(folder)
    assert len(after) == len(arms)
    # All but those that were being measured when their process was stopped or killed are as they were.
    assert sum(after[path] != when for path, when in before.items()) <= 4
    complete(folder, name, arms)

    # A study that is over is summed up again, without any process.
    again = start(*words)
    assert f"{len(arms)} runs, {len(arms)} of them done" in again.communicate()[0]
    assert evaluated(folder) == after
    other = start(name, "--budget", "0.0002", "--to", str(folder))
    assert "is another one: its budget was 0.0001 and is 0.0002" in other.communicate()[0]
    assert other.returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "which study? highway reproduce NAME. Choices: depth-contrast"),
        ("depth_contrast", "there is no study 'depth_contrast'. Did you mean 'depth-contrast'?"),
        ("depth-contrast --list", "--list takes no study. Did you mean: highway reproduce depth-contrast"),
        ("depth-contrast --budget 2", "--budget must be a number greater than 0 and at most 1. Received: '2'."),
        ("depth-contrast --data-dir no/such --to study", "there is no folder 'no/such' (--data-dir)"),
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
    monkeypatch.setattr("pipelines.data.folders.found", lambda *_: object())
    monkeypatch.setattr("pipelines.reproducing.measure.SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    began = time.time()
    found = measured(toy_config(), None, began)
    assert found.steps_per_epoch == 10
    assert 0 < found.step < found.start < time.time() - began
    assert list(tmp_path.iterdir()) == []

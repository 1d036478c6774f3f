"""`highway tune` in processes of its own that are killed: a worker, the chief, everything; and on several machines."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from pipelines import recipes
from pipelines.core.config import Space
from pipelines.tuning.search_plan import keep, locked
from pipelines.tuning.search_state import read
from pipelines.verbs.train import parse_train
from pipelines.verbs.tune import parse_tune
from tests.toy_data import COUNTS, ToyData, toy_config

ROOT = Path(__file__).parents[2]
# How long a search may take on a machine that does ten other things; the tool itself ends then.
MINUTES = "15"
# A chief and workers whose processes nobody starts again, as on machines that lose their power.
LONELY = """
import os, sys
from pipelines.tuning.distributed import fault_tolerance, process
fault_tolerance.LEASE = 4.0
status = process.main(sys.argv[1:])
sys.stdout.flush()
os._exit(status)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder with the toy data as a prepared data set, and a recipe for it."""
    root = tmp_path_factory.mktemp("tune")
    source = ToyData()

    class Toy(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"image": tfds.features.Image(shape=(8, 8, 1)), "label": tfds.features.ClassLabel(num_classes=4)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {split: self._generate_examples(split) for split in COUNTS}

        def _generate_examples(self, split):
            examples = source.load("toy", split)
            for number, (image, label) in enumerate(zip(examples.images, examples.labels, strict=True)):
                yield number, {"image": image, "label": int(label)}

    builder = Toy(data_dir=root)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    config = toy_config(data=str(builder.data_dir), epochs=3)
    space = Space(learning_rate=(0.01, 1.0), transform_bias=(-4.0, 0.0))
    recipe = recipes.get("demo").model_copy(update={"config": config, "search": space})
    (root / "toy.json").write_text(recipe.model_dump_json())
    return root


@pytest.fixture
def start(toy, tmp_path):
    """A function that starts a command; whatever still runs at the end of the test is killed."""
    running = []

    def run(*words, program=("-m", "pipelines", "tune", "toy.json"), **variables):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow", **variables}
        process = subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=toy,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def tasks(folder):
    """The processes of a search by their role, oldest first: what they do stands in their command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
            task = json.loads(next(word for word in words if word.startswith('{"role":')))
        except (OSError, StopIteration, ValueError):
            continue
        if task["folder"] == str(folder):
            found.setdefault(task["role"], []).append(int(path.parent.name))
    return {role: sorted(pids) for role, pids in found.items()}


def until(condition, process):
    """Waits for something that a search does; its own deadline ends the search, and with it the wait."""
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    return found


def trials(folder, status):
    state = read(folder)
    return [trial for trial in state.trials if trial.status == status] if state else []


def finished(process):
    # Its input stays open: a process of a search ends when that is closed.
    said = process.stdout.read()
    assert process.wait() == 0, said
    return said


def clock(folder):
    return json.loads((folder / "oracle.json").read_text())["clock"]


def table(folder):
    with (folder / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def ended(folder):
    """Whether all processes of a search have ended by themselves, as they do without the one that started them."""
    until = time.monotonic() + 60
    while tasks(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return tasks(folder) == {}


def test_a_search_outlives_its_worker_its_chief_and_itself(start, tmp_path):
    folder = tmp_path / "search"
    words = ("--trials", "5", "--workers", "2", "--to", str(folder), "--deadline")
    search = start(*words, MINUTES)
    first = until(lambda: trials(folder, "running"), search)[0]
    worker = until(lambda: tasks(folder).get("worker"), search)[int(first.worker[-1])]
    os.kill(worker, signal.SIGKILL)
    until(lambda: trials(folder, "completed"), search)
    os.kill(tasks(folder)["chief"][0], signal.SIGKILL)
    done = until(lambda: trials(folder, "completed")[1:], search)
    search.kill()
    assert "died (killed by SIGKILL) and is restarted" in search.communicate()[0]
    assert ended(folder)

    said = finished(start(*words, "0.01"))
    assert "resumes the search" in said
    assert "stopped at the deadline" in said
    assert {trial.number for trial in done} <= {row["trial"] for row in table(folder) if row["status"] == "completed"}

    # In place of a search that might be over before another has started.
    with locked(folder):
        second = start(*words, MINUTES)
        assert "another process is searching in" in second.communicate()[0]
    assert second.returncode == 2

    search = start(*words, MINUTES)
    until(lambda: tasks(folder), search)
    search.terminate()
    assert "stopped; repeat the command to continue" in search.communicate()[0]
    assert search.returncode == 128 + signal.SIGTERM
    assert ended(folder)

    said = finished(start(*words, MINUTES, "--retrain", "2"))
    assert [row["status"] for row in table(folder)] == ["completed"] * 5
    after = {trial.number: trial for trial in read(folder).trials}
    assert all(after[trial.number] == trial for trial in done)
    # Whoever was killed together with its chief is blamed for nothing.
    assert sum(one["lost"] for one in clock(folder).values()) <= 1
    config = parse_train([str(folder / "best.json")]).config
    best = max(table(folder), key=lambda row: float(row["val_accuracy"]))
    assert config.optimizer.learning_rate == pytest.approx(float(best["learning_rate"]), rel=1e-5)
    assert (folder / "figures" / "parallel.png").stat().st_size > 10_000
    assert len(list((folder / "tensorboard").glob("*/events*"))) == 5
    assert not list(folder.glob("trials/*/*.keras"))
    assert "2 of 2 runs" in said
    assert "toy retrained: best val_accuracy" in said
    with (folder / "retrained.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "1"]
    assert tasks(folder) == {}

    # A search that is over is summed up again, without any process.
    assert "best val_accuracy" in finished(start(*words, MINUTES))


def test_a_lost_machine_costs_no_trial_and_a_hopeless_trial_no_search(start, tmp_path, toy):
    folder = tmp_path / "search"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    here = {"KERASTUNER_ORACLE_PORT": port}
    # Some of these rates are too high for any net.
    words = f"--search.learning-rate 0.001 1e6 --model.activation relu --trials 4 --to {folder}".split()
    given = parse_tune([str(toy / "toy.json"), *words])
    keep(given.plan, given.folder)
    task = {"folder": str(folder), "data_dir": None, "ends": time.time() + 60 * float(MINUTES)}
    lonely = {"program": ("-c", LONELY), "KERASTUNER_ORACLE_IP": "127.0.0.1", **here}
    chief = start(json.dumps({"role": "chief", **task}), KERASTUNER_TUNER_ID="chief", **lonely)
    other = start(json.dumps({"role": "worker", **task}), KERASTUNER_TUNER_ID="worker-b", **lonely)
    until(lambda: trials(folder, "running"), chief)
    other.kill()
    worker = start(*words, KERASTUNER_TUNER_ID="worker-a", **here)
    finished(chief)
    assert "the chief has no more trials" in finished(worker)
    state = read(folder)
    assert state.over
    assert {trial.status for trial in state.trials} == {"completed", "failed"}
    assert len(state.trials) == 4
    assert {trial.reason for trial in state.trials} == {"", "the loss is no longer finite"}
    assert [one["lost"] for one in clock(folder).values() if one["lost"]] == [1]


def test_mistakes_end_the_search_with_one_message(start, tmp_path):
    for words, message in (
        ("--data no_such_data", "there is no data set 'no_such_data'"),
        ("--model.preset no_such_net", "There is no such preset"),
        # Not a failure of each of its trials: none could be trained, whatever is drawn.
        ("--schedule.kind cosine --schedule.warmup-steps 1000", "a warm-up of 1000 steps takes up all of"),
    ):
        search = start("--trials", "2", "--to", str(tmp_path / "search"), *words.split())
        said = search.communicate()[0]
        assert search.returncode == 2
        assert message in said
        assert "Traceback" not in said
        # The mended command is another search, and has to find the folder free.
        assert not (tmp_path / "search").exists()
    search = start("--to", str(tmp_path / "b"), KERASTUNER_TUNER_ID="chief")
    assert "KERASTUNER_ORACLE_PORT" in search.communicate()[0]
    assert search.returncode == 2
    for folder, port in ((tmp_path / "b", "99999"), (Path("/proc/search"), "8400")):
        search = start("--to", str(folder), KERASTUNER_TUNER_ID="chief", KERASTUNER_ORACLE_PORT=port)
        said = search.communicate()[0]
        assert "must be a port, 1 to 65535. Received: 99999" in said or "cannot be written" in said
        assert "Traceback" not in said
        assert search.returncode == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        search = start("--to", str(tmp_path / "c"), KERASTUNER_TUNER_ID="chief", KERASTUNER_ORACLE_PORT=port)
        assert "another process is listening there" in search.communicate()[0]
    assert search.returncode == 2

"""`highway tune` when a worker, the chief or all processes are killed; and on several machines."""

import csv
import io
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
from rich.console import Console

from pipelines import recipes
from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.tuning.distributed import chief as chiefs
from pipelines.tuning.search import tune
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.tuning.search_state import read
from pipelines.verbs.train import parse_train
from pipelines.verbs.tune import parse_tune
from tests.toy_data import COUNTS, ToyData, toy_config

ROOT = Path(__file__).parents[2]
# Deadline of a search on a busy machine.
MINUTES = "15"
# A chief and workers without a supervisor, as on machines that lose power.
UNSUPERVISED = """
from pipelines.training.processes.task import perform
from pipelines.tuning.distributed import fault_tolerance, process
from pipelines.tuning.search import SearchTask
fault_tolerance.LEASE = 4.0
perform(SearchTask, process.act)
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
    """A function that starts a command; processes still running at the end of the test are killed."""
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


def processes_by_role(folder):
    """Returns the processes of a search by role, oldest first, found by the task on their command line."""
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


def wait_for(condition, process):
    """Waits until a condition holds, or the search ends at its own deadline; returns the value of the condition."""
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    return found


def trials(folder, status):
    state = read(folder)
    return [trial for trial in state.trials if trial.status == status] if state else []


def finished(process):
    # The input stays open, because processes of a search end when it closes.
    output = process.stdout.read()
    assert process.wait() == 0, output
    return output


def elapsed(folder):
    return json.loads((folder / "oracle.json").read_text())["clock"]


def table(folder):
    with (folder / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def all_end(folder):
    """Returns True if all processes of a search end by themselves once their parent has died."""
    deadline = time.monotonic() + 60
    while processes_by_role(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return processes_by_role(folder) == {}


def options(folder, trials):
    return ("--trials", str(trials), "--to", str(folder))


@pytest.mark.slow
def test_a_search_survives_the_death_of_a_worker_the_chief_and_all_processes(start, tmp_path, toy):
    folder = tmp_path / "search"
    words = options(folder, 5)
    search = start(*words, "--workers", "2", "--deadline", MINUTES)
    first = wait_for(lambda: trials(folder, "running"), search)[0]
    worker = wait_for(lambda: processes_by_role(folder).get("worker"), search)[int(first.worker[-1])]
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: trials(folder, "completed"), search)
    os.kill(processes_by_role(folder)["chief"][0], signal.SIGKILL)
    done = wait_for(lambda: trials(folder, "completed")[1:], search)
    search.kill()
    assert "died (killed by SIGKILL) and is restarted" in search.communicate()[0]
    assert all_end(folder)

    # These checks need no further process.
    plan = parse_tune([str(toy / "toy.json"), *words]).plan
    with SEARCH_FILE.locked(folder), pytest.raises(UserError, match="another process is searching in"):
        tune(plan, folder)

    # As many workers as before: a worker that does not come back loses its trial.
    assert "resumes the search" in finished(start(*words, "--workers", "2", "--deadline", MINUTES))
    assert [row["status"] for row in table(folder)] == ["completed"] * 5
    after = {trial.number: trial for trial in read(folder).trials}
    assert all(after[trial.number] == trial for trial in done)
    # A worker killed together with its chief costs its trial nothing.
    assert sum(one["lost"] for one in elapsed(folder).values()) <= 1
    config = parse_train([str(folder / "best.json")]).config
    best = max(table(folder), key=lambda row: float(row["val_accuracy"]))
    assert config.optimizer.learning_rate == pytest.approx(float(best["learning_rate"]), rel=1e-5)
    assert (folder / "figures" / "parallel.png").stat().st_size > 10_000
    assert len(list((folder / "tensorboard").glob("*/events*"))) == 5
    assert not list(folder.glob("trials/*/*.keras"))
    assert processes_by_role(folder) == {}

    # A finished search is only summarized again, without starting a process.
    output = io.StringIO()
    tune(plan, folder, console=Console(file=output))
    assert "best val_accuracy" in output.getvalue()


@pytest.mark.slow
def test_a_search_stops_on_a_signal_and_at_its_deadline_and_retrains_the_best(start, tmp_path):
    folder = tmp_path / "search"
    words = (*options(folder, 3), "--deadline")
    search = start(*words, MINUTES)
    done = wait_for(lambda: trials(folder, "completed"), search)
    search.terminate()
    assert "stopped; repeat the command to continue" in search.communicate()[0]
    assert search.returncode == 128 + signal.SIGTERM
    assert all_end(folder)

    output = finished(start(*words, "0.01", "--retrain", "2"))
    assert "resumes the search" in output
    assert "stopped at the deadline" in output
    assert "the winner is retrained once all trials are done" in output
    assert {trial.number for trial in done} <= {row["trial"] for row in table(folder) if row["status"] == "completed"}

    output = finished(start(*words, MINUTES, "--retrain", "2"))
    assert "2 of 2 runs" in output
    assert "toy retrained: best val_accuracy" in output
    with (folder / "retrained.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "1"]
    assert processes_by_role(folder) == {}


@pytest.mark.slow
def test_the_loss_of_a_machine_fails_no_trial_and_a_failed_trial_stops_no_search(start, tmp_path, toy):
    folder = tmp_path / "search"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    here = {"KERASTUNER_ORACLE_PORT": port}
    # Some of these learning rates are too high for any net.
    words = f"--search.learning-rate 0.001 1e6 --model.activation relu --trials 4 --to {folder}".split()
    given = parse_tune([str(toy / "toy.json"), *words])
    SEARCH_FILE.keep(given.plan, given.folder)
    task = {"folder": str(folder), "data_dir": None, "ends": time.time() + 60 * float(MINUTES)}
    unsupervised = {"program": ("-c", UNSUPERVISED), "KERASTUNER_ORACLE_IP": "127.0.0.1", **here}
    chief = start(json.dumps({"role": "chief", **task}), KERASTUNER_TUNER_ID="chief", **unsupervised)
    other = start(json.dumps({"role": "worker", **task}), KERASTUNER_TUNER_ID="worker-b", **unsupervised)
    wait_for(lambda: trials(folder, "running"), chief)
    other.kill()
    worker = start(*words, KERASTUNER_TUNER_ID="worker-a", **here)
    finished(chief)
    assert "the chief has no more trials" in finished(worker)
    state = read(folder)
    assert state.over
    assert {trial.status for trial in state.trials} == {"completed", "failed"}
    assert len(state.trials) == 4
    assert {trial.reason for trial in state.trials} == {"", "the loss is no longer finite"}
    assert [one["lost"] for one in elapsed(folder).values() if one["lost"]] == [1]


@pytest.fixture
def port(monkeypatch):
    """A free port at which this process is the chief of a search."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    monkeypatch.setenv("KERASTUNER_TUNER_ID", "chief")
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_ORACLE_PORT", port)
    return int(port)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data no_such_data", "there is no data set 'no_such_data'"),
        ("--model.preset no_such_net", "There is no such preset"),
    ],
)
@pytest.mark.usefixtures("port")
def test_the_chief_refuses_a_search_without_trainable_settings(toy, tmp_path, words, message):
    plan = parse_tune([str(toy / "toy.json"), *words.split()]).plan
    with pytest.raises(UserError, match=message):
        chiefs.lead(plan, tmp_path, None, None)


def test_the_chief_refuses_an_address_in_use(toy, tmp_path, port):
    plan = parse_tune([str(toy / "toy.json")]).plan
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(UserError, match="another process is listening there"):
            chiefs.lead(plan, tmp_path, None, None)


@pytest.mark.slow
def test_an_error_of_the_chief_ends_the_search_with_one_message(start, tmp_path):
    # Not a failure of each trial: none of the settings can be trained.
    words = ("--schedule.kind", "cosine", "--schedule.warmup-steps", "1000")
    search = start(*options(tmp_path / "search", 2), *words)
    output = search.communicate()[0]
    assert search.returncode == 2
    assert "a warm-up of 1000 steps takes up all" in output
    assert "Traceback" not in output
    # The corrected command is another search, and has to find the folder free.
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("folder", "port", "message"),
    [
        ("b", "", "needs .*KERASTUNER_ORACLE_PORT"),
        ("b", "99999", "must be a port, 1 to 65535. Received: 99999"),
        ("/proc/search", "8400", "cannot be written"),
    ],
)
def test_user_errors_are_refused_before_any_process_starts(tmp_path, monkeypatch, folder, port, message):
    monkeypatch.setenv("KERASTUNER_TUNER_ID", "chief")
    monkeypatch.setenv("KERASTUNER_ORACLE_PORT", port)
    with pytest.raises(UserError, match=message):
        tune(parse_tune(["demo"]).plan, tmp_path / folder)
    assert list(tmp_path.iterdir()) == []

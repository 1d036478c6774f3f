"""`highway tune`: a whole search, and its state after a worker, the driver or all processes have been killed."""

import csv
import io
import json
import os
import random
import signal
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import tensorflow_datasets as tfds
from rich.console import Console

from pipelines import recipes
from pipelines.core.config import ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.tuning import search as searches
from pipelines.tuning.driver import drive, opened
from pipelines.tuning.search import Search, tune
from pipelines.tuning.search_plan import SEARCH_FILE, open_plan
from pipelines.tuning.search_state import read
from pipelines.verbs.cli import main
from pipelines.verbs.train import parse_train
from pipelines.verbs.tune import parse_tune
from tests.executors import Shuffled
from tests.toy_data import COUNTS, ToyData, toy_config
from tests.unit.pipelines.tuning.in_memory import InMemory, score_of

ROOT = Path(__file__).parents[2]
# Deadline of a search on a busy machine.
MINUTES = "15"
TRIALS = 4
# A trial that has trained half of them does not end while a test kills its process.
EPOCHS = 40
LOST = "has lost its process or node and starts again: "


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
    model = ModelConfig(preset="mnist_dense_50", depth=3, width=8)
    config = toy_config(data=str(builder.data_dir), model=model, epochs=EPOCHS)
    # So low that trials differ in their scores.
    space = Space(learning_rate=(1e-5, 1e-3), transform_bias=(-4.0, 0.0))
    recipe = recipes.get("demo").model_copy(update={"config": config, "search": space})
    (root / "toy.json").write_text(recipe.model_dump_json())
    return root


@pytest.fixture(scope="module")
def undisturbed(toy, tmp_path_factory):
    """The scores of a search that runs in this process."""
    search = search_of(toy, tmp_path_factory.mktemp("undisturbed") / "search")
    SEARCH_FILE.keep(search.plan, search.folder)
    drive(opened(search.plan, search.folder, None), Shuffled(capacity=1))
    return scores(search.folder)


def search_of(toy, folder):
    return parse_tune([str(toy / "toy.json"), *options(folder, TRIALS)]).search


@pytest.fixture
def start(toy, started):
    """A function that starts `highway tune`."""
    return partial(started, toy, "-m", "pipelines", "tune", "toy.json")


def workers(folder):
    """Returns the workers of a search, oldest first, found by the task on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
            task = json.loads(next(word for word in words if word.startswith('{"role":"worker"')))
        except (OSError, StopIteration, ValueError):
            continue
        if task["folder"] == str(folder):
            found.append(int(path.parent.name))
    return sorted(found)


@pytest.fixture
def start_on_cluster(cluster, toy, tmp_path):
    """A function that starts `highway tune` on the cluster, and returns the process and the file of its output."""
    running = []

    def start(*words):
        words = ("tune", "toy.json", *words, "--deadline", MINUTES, "--cluster", cluster.address)
        output = tmp_path / f"output-{len(running)}"
        with output.open("w") as file:
            command = [sys.executable, "-m", "pipelines", *words]
            search = cluster.start(command, {"PYTHONPATH": str(ROOT)}, cwd=toy, stdout=file)
        running.append(search)
        return search, output

    yield start
    for process in running:
        process.kill()
        process.wait()


def trained_on(cluster, node, folder):
    """Returns the process of the trial that trains on a node, and the number of epochs that it has trained."""
    for task in cluster.tasks_on(node):
        with suppress(psutil.Error):
            # It locks this file.
            for path in (Path(file.path) for file in psutil.Process(task).open_files()):
                if path.name == "config.json" and folder in path.parents:
                    metrics = path.with_name("metrics.csv")
                    return task, len(metrics.read_text().splitlines()) - 1 if metrics.exists() else 0
    return None, 0


def wait_for(condition, process, output=None):
    """Waits until a condition holds, or the search ends at its own deadline; returns the value of the condition."""
    while not (found := condition()):
        assert process.poll() is None, output.read_text() if output else process.communicate()[0]
        time.sleep(0.05)
    return found


def trials(folder, status):
    state = read(folder)
    return [trial for trial in state.trials if trial.status == status] if state else []


def finished(process):
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def table(folder):
    with (folder / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def scores(folder):
    return [(trial.number, trial.values, trial.score) for trial in read(folder).trials]


def all_end(folder):
    """Returns True if all workers of a search end by themselves once their parent has died."""
    deadline = time.monotonic() + 60
    while workers(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return workers(folder) == []


def options(folder, trials):
    return ("--trials", str(trials), "--to", str(folder))


@pytest.fixture
def untrained(monkeypatch):
    """An executor that scores trials without training them."""
    executor = InMemory(score_of)
    monkeypatch.setattr(Search, "executor", lambda *_: nullcontext(executor))
    return executor


def said_by(search, **options):
    output = io.StringIO()
    tune(search, console=Console(file=output, width=200), **options)
    return output.getvalue()


def test_a_search_leaves_its_table_its_winner_and_figures(toy, tmp_path, untrained):
    search, folder = search_of(toy, tmp_path / "search"), tmp_path / "search"
    said = said_by(search)
    assert f"random search over toy in {folder}" in said
    assert f"{TRIALS} of {TRIALS} trials, best" in said
    rows = table(folder)
    assert [row["status"] for row in rows] == ["completed"] * TRIALS
    config = parse_train([str(folder / "best.json")]).config
    best = max(rows, key=lambda row: float(row["val_accuracy"]))
    assert config.optimizer.learning_rate == pytest.approx(float(best["learning_rate"]), rel=1e-5)
    assert (folder / "figures" / "parallel.png").stat().st_size > 10_000
    assert len(list((folder / "tensorboard").glob("*/events*"))) == TRIALS

    # A finished search is only summarized again, without starting a process. One that was killed left some weights.
    untrained.submit = lambda *_: pytest.fail("nothing is left to run")
    trial = folder / "trials" / "0"
    (trial / "checkpoint").mkdir(parents=True)
    for name in ("best.keras", "initial.keras", "metrics.csv"):
        (trial / name).touch()
    assert "best validation accuracy" in said_by(search)
    assert [file.name for file in trial.iterdir()] == ["metrics.csv"]


def test_a_deadline_ends_a_search_with_the_best_so_far(toy, tmp_path, monkeypatch, untrained):
    search, clock, left = search_of(toy, tmp_path / "search"), [0.0], [1, 2]

    def choose(executor):
        if left:
            left.pop()
            return next(iter(executor.tasks))
        clock[0] = float("inf")
        return None

    monkeypatch.setattr("pipelines.tuning.driver.time", SimpleNamespace(time=lambda: clock[0]))
    untrained.choose = choose
    said = said_by(search, minutes=1, retrain=2)
    assert "stopped at the deadline after 2 trials; repeat the command to resume" in said
    assert "best validation accuracy" in said
    assert "the winner is retrained once all trials are done" in said
    assert [row["status"] for row in table(search.folder)] == ["completed", "completed", "running"]
    with pytest.raises(UserError, match=r"no trial finished before the deadline. Repeat the command to resume"):
        tune(search_of(toy, tmp_path / "late"), minutes=1)


@pytest.mark.slow
def test_a_search_survives_the_death_of_a_worker_and_of_its_driver(start, tmp_path, undisturbed):
    folder = tmp_path / "search"
    words = (*options(folder, TRIALS), "--workers", "2", "--deadline", MINUTES)
    search = start(*words)
    wait_for(lambda: trials(folder, "running"), search)
    os.kill(workers(folder)[0], signal.SIGKILL)
    done = wait_for(lambda: trials(folder, "completed")[1:], search)
    search.kill()
    assert "died (killed by SIGKILL) and is restarted" in search.communicate()[0]
    assert all_end(folder)

    # These checks need no further process.
    plan = open_plan(folder)
    with SEARCH_FILE.locked(folder), pytest.raises(UserError, match="another process is searching in"):
        tune(Search(plan, folder))

    assert "resumes the search" in finished(start(*words))
    after = {trial.number: trial for trial in read(folder).trials}
    assert all(after[trial.number] == trial for trial in done)
    assert scores(folder) == undisturbed
    assert workers(folder) == []


@pytest.mark.slow
def test_a_search_on_a_cluster_survives_the_death_of_a_worker_a_node_and_its_driver(
    tmp_path, undisturbed, cluster, start_on_cluster
):
    folder, chance = tmp_path / "search", random.Random(0)
    search, output = start_on_cluster(*options(folder, TRIALS))

    def training(nodes):
        """Waits until a trial has trained some epochs on one of the nodes; returns its process."""
        epochs = chance.randint(1, EPOCHS // 2)

        def process():
            found = [trained_on(cluster, node, folder) for node in nodes]
            return next((task for task, trained in found if trained >= epochs), None)

        return wait_for(process, search, output)

    os.kill(training("b"), signal.SIGKILL)
    training("a")
    cluster.kill("a")
    cluster.add("a")
    wait_for(lambda: output.read_text().count(LOST) == 2, search, output)
    wait_for(lambda: trials(folder, "completed"), search, output)
    training("ab")
    done = trials(folder, "completed")
    search.kill()
    search.wait()
    reasons = sorted(line.partition(LOST)[2] for line in output.read_text().splitlines() if LOST in line)
    assert len(reasons) == 2, output.read_text()
    assert reasons[0].startswith("Task failed because the node it was running on is dead")
    assert reasons[1].startswith("The worker died unexpectedly")

    search, output = start_on_cluster(*options(folder, TRIALS))
    assert search.wait() == 0, output.read_text()
    assert "resumes the search" in output.read_text()
    assert LOST not in output.read_text()
    after = {trial.number: trial for trial in read(folder).trials}
    assert all(after[trial.number] == trial for trial in done)
    assert scores(folder) == undisturbed


@pytest.mark.slow
def test_hyperband_with_two_cores_a_trial_on_a_cluster_equals_that_of_one_worker(
    tmp_path, toy, cluster, start_on_cluster
):
    alone, together = tmp_path / "alone", tmp_path / "together"
    words = ("--algorithm", "hyperband", "--epochs", "3", "--search.learning-rate", "0.001", "0.03")
    assert main(["tune", str(toy / "toy.json"), *words, "--to", str(alone)]) == 0
    cluster.add("pair", num_cpus=2)
    try:
        search, output = start_on_cluster(*words, "--to", str(together), "--cores-per-trial", "2")
        task = wait_for(lambda: trained_on(cluster, "pair", together)[0], search, output)
        assert cluster.tasks() == [task]
        assert len(os.sched_getaffinity(task)) == min(2, len(os.sched_getaffinity(0)))
        assert search.wait() == 0, output.read_text()
    finally:
        cluster.kill("pair")
    assert LOST not in output.read_text()
    assert "best validation accuracy" in output.read_text()
    one, other = ([replace(trial, since=0, seconds=0) for trial in read(folder).trials] for folder in (alone, together))
    assert one == other
    assert [trial.status for trial in other] == ["completed"] * len(open_plan(together).work)
    assert any(trial.earlier for trial in other)
    best = [parse_train([str(folder / "best.json")]).config for folder in (alone, together)]
    assert best[0] == best[1]


@pytest.mark.slow
def test_a_search_stops_on_a_signal_and_retrains_the_best_at_its_end(start, tmp_path):
    folder = tmp_path / "search"
    words = (*options(folder, 3), "--deadline", MINUTES, "--retrain", "2")
    search = start(*words)
    done = wait_for(lambda: trials(folder, "completed"), search)
    search.terminate()
    output = search.communicate()[0]
    assert "SIGTERM: every process saves and ends; a second signal ends at once" in output
    assert "stopped; repeat the command to continue" in output
    assert "Traceback" not in output
    assert search.returncode == 128 + signal.SIGTERM
    assert workers(folder) == []

    output = finished(start(*words))
    assert "resumes the search" in output
    assert all(trial in read(folder).trials for trial in done)
    assert not list(folder.glob("trials/*/*.keras"))
    assert "2 of 2 runs" in output
    assert "toy retrained: best validation accuracy" in output
    with (folder / "retrained.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2"]


def test_a_search_without_trainable_settings_is_refused(toy, tmp_path):
    plan = parse_tune([str(toy / "toy.json"), "--data", "no_such_data"]).search.plan
    with pytest.raises(UserError, match="there is no data set 'no_such_data'"):
        opened(plan, tmp_path, None)


def test_a_search_whose_every_trial_mixes_images_twice_is_refused(toy, tmp_path):
    # The lower end of the range would not, but is never drawn.
    words = [str(toy / "toy.json"), "--augment.cutmix", "1", "--search.mixup", "0", "1"]
    with pytest.raises(UserError, match="by mixup or by cutmix, not by both"):
        opened(parse_tune(words).search.plan, tmp_path, None)


def test_a_search_warns_of_no_settings_that_may_never_be_drawn(toy, tmp_path):
    # Warnings are errors here.
    words = [str(toy / "toy.json"), "--search.transform-bias", "-100", "-1"]
    opened(parse_tune(words).search.plan, tmp_path, None)


def test_a_refused_search_ends_its_workers_and_leaves_the_folder_free(toy, tmp_path, capsys):
    # Not a failure of each trial: none of the settings can be trained.
    words = ("--schedule.kind", "cosine", "--schedule.warmup-steps", "1000")
    assert main(["tune", str(toy / "toy.json"), *options(tmp_path / "new" / "search", 2), *words]) == 2
    error = capsys.readouterr().err
    assert "a warm-up of 1000 steps takes up all" in error
    assert "Traceback" not in error
    assert workers(tmp_path / "new" / "search") == []
    # The corrected command is another search, and has to find the folder free.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", searches.VARIABLES)
def test_the_variables_of_searches_over_several_machines_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "chief")
    with pytest.raises(UserError, match=rf"{name} is set.* name a cluster with --cluster ADDRESS"):
        tune(parse_tune(["demo", "--to", str(tmp_path / "search")]).search)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(mnist_5k):
    with pytest.raises(UserError, match="cannot be written"):
        tune(replace(parse_tune(["demo"]).search, folder=Path("/proc/search"), data_dir=mnist_5k))

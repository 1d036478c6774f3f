"""A run that was stopped goes on as if it had not been; what cannot go on is refused."""

import errno
import io
import json
import os
import shutil

import keras
import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import SGD, AdamW, Augment, CosineSchedule, ModelConfig, Preprocess
from pipelines.core.errors import UserError
from pipelines.training import checkpoint
from pipelines.training.train import resume, train
from tests.killed_run import differences
from tests.toy_data import ToyData, toy_config

# Dropout, augmentation, momentum, weight means and a schedule over the whole run: all that has a state.
ALL = toy_config(
    model=ModelConfig(preset="mnist_conv_16", width=4),
    preprocess=Preprocess(mean="channel"),
    augment=Augment(pad=2, mirror=False),
    optimizer=SGD(learning_rate=0.05, bias_multiplier=2.0, ema=0.9),
    schedule=CosineSchedule(warmup_steps=5),
    epochs=3,
)
# Epochs of ten steps, as those of `ALL`.
DENSE = toy_config(epochs=3, steps_per_execution=1, optimizer=SGD(learning_rate=0.1, ema=0.9))


class Killed(BaseException):
    """As sudden as a signal."""


def begin(path, config=DENSE, interval=1):
    console = Console(file=io.StringIO(), width=400)
    train(config, path, interval=interval, console=console)


def go_on(path, interval=1):
    console = Console(file=io.StringIO(), width=400)
    resume(path, interval=interval, console=console)
    return console.file.getvalue()


def kill(monkeypatch, step, action, *arguments, before=False):
    """Does something that trains, until the state after a step has been, or is about to be, saved."""
    save = checkpoint.save

    def saved(folder, model, progress, belongs_to):
        if before and progress.step == step:
            raise Killed
        save(folder, model, progress, belongs_to)
        if progress.step == step:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", saved)
        with pytest.raises(Killed):
            action(*arguments)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    return ToyData(side=28).install(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A function that gives a run of a configuration that nobody stopped, and that was saved at its end only."""
    made = {}

    def run(config):
        key = config.model_dump_json()
        if key not in made:
            made[key] = tmp_path_factory.mktemp("whole") / "run"
            begin(made[key], config, interval=10**9)
        return made[key]

    return run


def test_two_runs_are_the_same_bit_for_bit(whole, tmp_path):
    # JAX takes long to compile convolutions.
    config = DENSE if keras.backend.backend() == "jax" else ALL
    begin(tmp_path / "again", config, interval="auto")
    assert differences(whole(config), tmp_path / "again") == []


def test_a_run_goes_on_from_the_middle_of_an_epoch(whole, tmp_path, monkeypatch):
    path = tmp_path / "killed"
    kill(monkeypatch, 13, begin, path, ALL)
    assert runs.open_run(path).record.state == "running"
    assert not (path / "model.keras").exists()
    go_on(path)
    assert differences(whole(ALL), path) == []


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (1, True),  # nothing was ever saved
        (20, True),  # a row in metrics.csv that no checkpoint holds
        (20, False),
        (29, False),  # nothing left but one step
        (30, False),  # nothing left but to keep the net
    ],
)
def test_wherever_it_was_killed(whole, tmp_path, monkeypatch, step, before):
    path = tmp_path / "killed"
    kill(monkeypatch, step, begin, path, before=before)
    go_on(path)
    assert differences(whole(DENSE), path) == []


@pytest.mark.parametrize(
    ("changes", "killed"),
    [
        # Batches that are large enough to be divided among devices, where there are several.
        ({"precision": "mixed_bfloat16", "batch_size": 100}, {"interval": 1, "step": 3}),
        ({"optimizer": AdamW(learning_rate=0.01, weight_decay=0.1)}, {"interval": 3, "step": 15}),
        # Executions of two steps, which reach a multiple of three with the sixteenth step.
        ({"precision": "mixed_float16", "steps_per_execution": 2}, {"interval": 3, "step": 16}),
    ],
)
def test_precisions_and_optimizers(whole, tmp_path, monkeypatch, changes, killed):
    config = toy_config(**{**DENSE.model_dump(), **changes})
    path = tmp_path / "killed"
    kill(monkeypatch, killed["step"], begin, path, config, killed["interval"])
    go_on(path)
    assert differences(whole(config), path) == []


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(whole, tmp_path, monkeypatch):
    path = tmp_path / "killed"
    kill(monkeypatch, 14, begin, path)
    newest = path / "checkpoint" / "state.npz"
    newest.write_bytes(newest.read_bytes()[:-1000])
    said = go_on(path)
    assert f"{newest} is damaged (BadZipFile); the previous one is intact" in said
    assert "resumes after step 13" in said
    assert differences(whole(DENSE), path) == []


def test_a_kill_between_the_two_renames(whole, tmp_path, monkeypatch):
    path = tmp_path / "killed"
    kill(monkeypatch, 14, begin, path)
    (path / "checkpoint" / "state.npz").unlink()
    assert "damaged" not in go_on(path)
    assert differences(whole(DENSE), path) == []


def test_a_disk_that_is_full_in_the_middle_of_a_write(whole, tmp_path, monkeypatch):
    path = tmp_path / "killed"
    savez = np.savez

    def full(file, **arrays):
        if '"step": 14' in str(arrays.get("head")):
            file.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(UserError, match=r"the disk is full .*No space left.* resume with: highway train --resume"):
            begin(path)
    assert sorted(file.name for file in (path / "checkpoint").iterdir()) == ["previous.npz", "state.npz"]
    assert "resumes after step 13" in go_on(path)
    assert differences(whole(DENSE), path) == []


def test_what_a_kill_left_is_removed(tmp_path, monkeypatch):
    path = tmp_path / "killed"
    kill(monkeypatch, 4, begin, path)
    left = [path / ".best-a1b2c3_d.keras", path / "checkpoint" / ".state-a1b2c3_d.npz"]
    for file in left:
        file.touch()
    go_on(path)
    assert not any(file.exists() for file in left)
    assert [file.name for file in (path / "checkpoint").iterdir()] == ["state.npz"]


def test_a_kill_while_figures_are_drawn(whole, tmp_path):
    path = tmp_path / "killed"
    shutil.copytree(whole(DENSE), path)
    drawn = [path / "figures" / "gates.png", path / "report.md"]
    left = path / "figures" / ".gates-a1b2c3_d.png"
    left.touch()
    for file in drawn:
        file.unlink()
    go_on(path)
    assert all(file.exists() for file in drawn)
    assert not left.exists()
    refused(path, "is finished: all 3 epochs are done")


@pytest.fixture
def killed(tmp_path, monkeypatch):
    path = tmp_path / "toy"
    kill(monkeypatch, 14, begin, path)
    return path


def test_time_adds_up_and_preprocessing_is_made_again(killed):
    (killed / "preprocess.npz").unlink()
    with np.load(killed / "checkpoint" / "state.npz") as arrays:
        before = json.loads(str(arrays["head"]))["progress"]["seconds"]
    go_on(killed)
    assert runs.open_run(killed).record.seconds > before > 0
    assert (killed / "preprocess.npz").exists()


def refused(path, told):
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(UserError, match=told):
        go_on(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_two_damaged_checkpoints_are_named_and_nothing_changed(killed):
    for name in ("state.npz", "previous.npz"):
        file = killed / "checkpoint" / name
        file.write_bytes(file.read_bytes()[:1000])
    refused(killed, r"no checkpoint to resume from: .*state\.npz is damaged .*previous\.npz is damaged")


def test_the_checkpoint_of_another_recipe_is_refused_by_name(killed, tmp_path, monkeypatch):
    other = tmp_path / "other"
    kill(monkeypatch, 10, begin, other, toy_config(recipe="other"))
    shutil.copy(other / "checkpoint" / "state.npz", killed / "checkpoint" / "state.npz")
    refused(killed, r"is of recipe other, and this run of toy")


def test_another_version_is_refused_by_name(killed):
    run = runs.open_run(killed)
    run.update(versions={**run.record.versions, "keras": "3.0.0"})
    refused(killed, r"was started with keras 3\.0\.0, and this is 3\..*Install keras==3\.0\.0")


def test_other_data_is_refused(killed, monkeypatch):
    ToyData(side=28, validation=False).install(monkeypatch)
    refused(killed, "and the data found is")


def test_another_backend_is_refused(killed):
    runs.open_run(killed).update(backend="other")
    refused(killed, "KERAS_BACKEND=other")


def test_a_run_in_use_is_refused(killed):
    with runs.locked(runs.open_run(killed)):
        refused(killed, "another process is training")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run directory"):
        go_on(tmp_path / "none")

"""An interrupted run ends as if it had never been interrupted; a run that cannot be resumed is refused."""

import errno
import io
import json
import os
import shutil
import signal

import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import Augment, ModelConfig, Preprocess, StageConfig
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.optimizers import SGD, AdamW, CosineSchedule, Lion, Muon, StepSchedule, TrapezoidSchedule
from pipelines.training import checkpoint, figures, metrics_file
from pipelines.training.checkpoint_file import saved_step
from pipelines.training.train import resume, train
from tests.interrupted import at, copied
from tests.killed_run import differences
from tests.toy_data import ToyData, toy_config

# Everything that has state. Epochs have ten steps.
DENSE = toy_config(
    epochs=3,
    steps_per_execution=1,
    precision="mixed_float16",
    optimizer=AdamW(learning_rate=0.02, weight_decay=0.1, ema=0.9),
)
CONVOLUTIONS = toy_config(
    model=ModelConfig(preset="mnist_conv_16", width=4),
    preprocess=Preprocess(mean="channel"),
    augment=Augment(pad=2, mirror=False),
    optimizer=SGD(learning_rate=0.05, bias_multiplier=2.0, ema=0.9),
    schedule=CosineSchedule(warmup_steps=5),
    epochs=2,
)
# A whitened kernel, and two of three epochs on smaller images.
PROGRESSIVE = toy_config(
    model=ModelConfig(
        preset="mnist_conv_16",
        stages=(StageConfig(filters=4, blocks=(3,), pool=(2, 2), dropout=0.3), StageConfig(filters=4, pool="average")),
        batch_normalization=True,
        whitened=True,
    ),
    augment=Augment(pad=2, cutout=4),
    small_side=20,
    small_share=0.7,
    optimizer=SGD(learning_rate=0.05, ema=0.9),
    steps_per_execution=2,
    epochs=3,
)
OTHERS = {
    # Batches and depth for which JAX uses several devices.
    "bfloat16": (
        {"precision": "mixed_bfloat16", "batch_size": 100, "model": ModelConfig(preset="mnist_dense_50", width=12)},
        1,
        3,
    ),
    # Executions of two steps, which reach a multiple of three with the sixteenth step.
    "executions": ({"steps_per_execution": 2, "precision": "float32", "optimizer": SGD(learning_rate=0.1)}, 3, 16),
    "lion": (
        {
            "optimizer": Lion(weight_decay=0.1, ema=0.9),
            "schedule": TrapezoidSchedule(),
            "sampling": "balanced",
            "batch_size": 25,
        },
        1,
        14,
    ),
    "muon": (
        {
            "optimizer": Muon(weight_decay=0.1),
            "class_weights": "balanced",
            "patience": 2,
            "epochs": 6,
            # Nothing improves after the first epoch.
            "schedule": StepSchedule(boundaries=(10,), factor=1e-9),
        },
        1,
        14,
    ),
    # The first four layers are frozen.
    "convolutions": (CONVOLUTIONS.model_copy(update={"freeze": 4}).model_dump(), 1, 13),
}
MOMENTS = ((1, True), (2, True), (4, False), (14, False), (20, True), (20, False), (24, False), (30, False))
DRAW = figures.draw_training


def train_run(path, config=DENSE, interval=1):
    train(config, path, interval=interval, console=Console(file=io.StringIO(), width=400))


def resume_run(path, interval=1):
    console = Console(file=io.StringIO(), width=400)
    resume(path, interval=interval, console=console)
    return console.file.getvalue()


def read_head(checkpoint):
    with np.load(checkpoint) as arrays:
        return json.loads(str(arrays["head"]))


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    # Figures take a quarter of the time.
    monkeypatch.setattr(figures, "draw_training", lambda run: None)
    return ToyData(side=28).install(monkeypatch)


@pytest.fixture
def interrupted(shared, tmp_path):
    """A function that returns an uninterrupted run, and a copy of its folder as a kill at a given step leaves it."""

    def copy(step, before=False, config=DENSE, interval=1, name="dense"):
        def make(folder):
            with copied(folder / "whole", folder, {*MOMENTS, (step, before)}):
                train_run(folder / "whole", config, interval)

        folder = shared(f"interrupted-{name}", make)
        path = tmp_path / "killed"
        shutil.copytree(at(folder, step, before), path)
        return folder / "whole", path

    return copy


@pytest.mark.slow
def test_two_runs_are_bit_identical(interrupted, tmp_path):
    whole, _ = interrupted(14)
    train_run(tmp_path / "again", interval="auto")
    assert differences(whole, tmp_path / "again") == []


@pytest.mark.parametrize(
    ("step", "before"),
    [
        pytest.param(1, True, marks=pytest.mark.slow),  # no checkpoint yet
        (20, True),  # a row of metrics.csv that is in no checkpoint
        pytest.param(20, False, marks=pytest.mark.slow),
        (30, False),  # only the net remains to be saved
    ],
)
def test_a_run_killed_at_any_step_ends_as_if_uninterrupted(interrupted, step, before):
    whole, path = interrupted(step, before)
    record = runs.open_run(path).record
    assert (record.state, record.step <= saved_step(path)) == ("running", True)
    assert not (path / "model.keras").exists()
    resume_run(path)
    assert differences(whole, path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_runs_of_other_configurations_end_as_if_uninterrupted(interrupted, name):
    changes, interval, step = OTHERS[name]
    config = toy_config(**{**DENSE.model_dump(), **changes})
    whole, path = interrupted(step, config=config, interval=interval, name=name)
    resume_run(path, interval)
    assert differences(whole, path) == []


@pytest.mark.parametrize(
    ("step", "before"),
    [
        pytest.param(2, True, marks=pytest.mark.slow),  # the kernel is whitened again
        (14, False),  # the rest of the last epoch on smaller images is a program of its own
        pytest.param(20, True, marks=pytest.mark.slow),
        pytest.param(20, False, marks=pytest.mark.slow),
        pytest.param(24, False, marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_images_grow_ends_as_if_uninterrupted(interrupted, step, before):
    whole, path = interrupted(step, before, PROGRESSIVE, name="progressive")
    assert "images of 20 x 20 pixels in the first 2 epochs, then of full size" in resume_run(path)
    assert differences(whole, path) == []
    assert weights(whole / "model.keras")[0].shape == (3, 3, 1, 4)
    assert runs.load_file(whole / "model.keras").input_shape == (None, 28, 28, 1)


def test_long_epochs_have_rows_for_their_steps(interrupted):
    # 40 steps, and a row for every other one; the row of step 14 is in no checkpoint.
    config = toy_config(**{**DENSE.model_dump(), "batch_size": 5, "epochs": 2})
    whole, path = interrupted(14, True, config=config, name="steps")
    rows, epochs = metrics_file.read(whole / "steps.csv"), metrics_file.read(whole / "metrics.csv")
    assert [row["step"] for row in rows] == list(range(2, 81, 2))
    # The mean since the start of the epoch is that of the epoch at its end.
    assert [rows[19]["loss"], rows[39]["loss"]] == pytest.approx([row["loss"] for row in epochs], rel=1e-6)
    assert len(metrics_file.read(path / "steps.csv")) == 7
    resume_run(path)
    assert differences(whole, path) == []


def test_a_fine_tuned_run_starts_again_from_the_same_net(interrupted):
    source, killed = interrupted(14)
    shutil.rmtree(killed)
    config = toy_config(**{**DENSE.model_dump(), "start_from": str(source), "seed": 7})
    whole, path = interrupted(1, True, config=config, name="fine-tuned")
    for initial, trained in zip(weights(whole / "initial.keras"), weights(source / "model.keras"), strict=True):
        np.testing.assert_array_equal(initial, trained)
    resume_run(path)
    assert differences(whole, path) == []


def weights(path):
    return runs.load_file(path).get_weights()


def test_a_damaged_checkpoint_falls_back_to_the_previous_one(interrupted):
    whole, path = interrupted(14)
    newest = path / "checkpoint" / "state.npz"
    before = read_head(newest)["progress"]["seconds"]
    newest.write_bytes(newest.read_bytes()[:-1000])
    # Leftovers of killed writes, and no preprocessing, as after a kill right after the folder was created.
    left = [path / ".best-a1b2c3_d.keras", path / "checkpoint" / ".state-a1b2c3_d.npz"]
    for file in left:
        file.touch()
    (path / "preprocess.npz").unlink()
    output = resume_run(path)
    assert f"{newest} is damaged (BadZipFile); the previous one is intact" in output
    assert "resuming after step 13" in output
    assert differences(whole, path) == []
    assert runs.open_run(path).record.seconds > before > 0
    assert not any(file.exists() for file in left)
    assert [file.name for file in (path / "checkpoint").iterdir()] == ["state.npz"]
    assert (path / "preprocess.npz").exists()


@pytest.mark.slow
def test_a_run_killed_between_the_two_renames_of_a_save_resumes(interrupted):
    whole, path = interrupted(30)
    (path / "checkpoint" / "state.npz").unlink()
    output = resume_run(path)
    assert "damaged" not in output
    assert "resuming after step 29" in output  # one step remains
    assert differences(whole, path) == []


def test_a_disk_full_in_the_middle_of_a_save_leaves_both_checkpoints_intact(interrupted, monkeypatch):
    _, path = interrupted(4)
    savez = np.savez

    def full(file, **arrays):
        if '"step": 14' in str(arrays.get("head")):
            file.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, **arrays)

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UserError, match=rf"the disk is full .*No space left.* resume with: {runs.resuming(path)}$"):
        resume_run(path)
    files = sorted((path / "checkpoint").iterdir())
    assert [(file.name, read_head(file)["progress"]["step"]) for file in files] == [
        ("previous.npz", 12),
        ("state.npz", 13),
    ]


def test_a_run_that_is_stopped_names_the_command_that_resumes_it(interrupted, monkeypatch):
    _, path = interrupted(14)

    def stop(*_):
        raise KeyboardInterrupt

    console, load = Console(file=io.StringIO(), width=400), checkpoint.load
    again = runs.resuming(path, ["--data-dir", "data"])
    monkeypatch.setattr("pipelines.training.launch.checkpoint.load", stop)
    with pytest.raises(KeyboardInterrupt):
        resume(path, console=console, again=["--data-dir", "data"])
    assert f"stopped; resume with: {again}" in console.file.getvalue()
    monkeypatch.setattr("pipelines.training.launch.checkpoint.load", load)
    signals = iter([signal.SIGTERM])
    with pytest.raises(StoppedError, match=f"saved. Resume with: {again}$"):
        resume(
            path,
            console=console,
            reset_watchdog=lambda: [os.kill(os.getpid(), number) for number in signals],
            again=["--data-dir", "data"],
        )


@pytest.fixture
def killed(interrupted):
    return interrupted(14)[1]


def test_figures_and_report_of_a_killed_run_are_completed(interrupted, tmp_path, monkeypatch):
    path = tmp_path / "drawing"
    shutil.copytree(interrupted(14)[0], path)
    monkeypatch.setattr(figures, "draw_training", DRAW)
    drawn = [path / "figures" / "gates.png", path / "report.md"]
    left = path / "figures" / ".gates-a1b2c3_d.png"
    left.parent.mkdir(exist_ok=True)
    left.touch()
    (path / "report.md").unlink()
    resume_run(path)
    assert all(file.exists() for file in drawn)
    assert not left.exists()
    refused(path, "is finished: all 3 epochs are done")


def refused(path, message):
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(UserError, match=message):
        resume_run(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_two_damaged_checkpoints_are_refused_by_name(killed):
    for name in ("state.npz", "previous.npz"):
        file = killed / "checkpoint" / name
        file.write_bytes(file.read_bytes()[:1000])
    refused(killed, r"no checkpoint to resume from: .*state\.npz is damaged .*previous\.npz is damaged")


def test_the_checkpoint_of_another_recipe_is_refused_by_name(killed):
    config = killed / "config.json"
    config.write_text(config.read_text().replace('"toy"', '"other"', 1))
    refused(killed, r"is of recipe toy, and this run of other")


def test_another_version_is_refused_by_name(killed):
    run = runs.open_run(killed)
    run.update(versions={**run.record.versions, "keras": "3.0.0"})
    refused(killed, r"was started with keras 3\.0\.0, and this is 3\..*Install keras==3\.0\.0")


def test_other_data_is_refused(killed, monkeypatch):
    ToyData(side=28, validation=False).install(monkeypatch)
    refused(killed, "but the data found is")


def test_another_backend_is_refused(killed):
    runs.open_run(killed).update(backend="other")
    refused(killed, "KERAS_BACKEND=other")


def test_a_run_in_use_is_refused(killed):
    with runs.locked(runs.open_run(killed)):
        refused(killed, "another process is training")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run directory"):
        resume_run(tmp_path / "none")

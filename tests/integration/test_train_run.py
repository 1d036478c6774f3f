"""Complete training runs of a small net: run directories and refusals."""

import io
import json
import math

import keras
import numpy as np
import pytest
from rich.console import Console

from highway_keras import mean_gates
from pipelines.core import environment
from pipelines.core import run as runs
from pipelines.core.config import Augment, ModelConfig, Preprocess, StageConfig
from pipelines.core.errors import UserError
from pipelines.core.optimizers import SGD, CosineSchedule, StepSchedule, TrapezoidSchedule
from pipelines.data import preprocess
from pipelines.training import figures, metrics_file
from pipelines.training.train import train
from pipelines.verbs.cli import main
from tests.killed_run import NEWEST
from tests.toy_data import ToyData, toy_config


@pytest.fixture
def toy(monkeypatch):
    return ToyData().install(monkeypatch)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take a quarter of the time."""
    monkeypatch.setattr(figures, "draw_training", lambda run: None)


def train_run(path, config=None, **options):
    console = Console(file=io.StringIO(), width=200)
    train(config or toy_config(), path, console=console, **options)
    return runs.open_run(path), console.file.getvalue()


CONFIG = toy_config(
    epochs=4,
    preprocess=Preprocess(mean="pixel"),
    augment=Augment(pad=1),
    # The rate drops to one that changes nothing.
    schedule=StepSchedule(boundaries=(30,), factor=1e-9),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of `CONFIG`, its output, and the splits that it loaded, which tests must not change."""
    with pytest.MonkeyPatch.context() as patch:
        toy = ToyData().install(patch)
        return *train_run(tmp_path_factory.mktemp("runs") / "new" / "toy", CONFIG), set(toy.asked)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of `toy_config()`, which tests must not change."""
    with pytest.MonkeyPatch.context() as patch:
        ToyData().install(patch)
        patch.setattr(figures, "draw_training", lambda run: None)
        return train_run(tmp_path_factory.mktemp("runs") / "plain")[0]


def test_a_run_directory_is_complete(whole, toy):
    run, output, _ = whole
    path = run.path
    assert sorted(entry.name for entry in path.iterdir()) == [
        "best.keras",
        "checkpoint",
        "config.json",
        "figures",
        "metrics.csv",
        "model.keras",
        "preprocess.npz",
        "report.md",
        "run.json",
        "tensorboard",
    ]
    assert sorted(entry.name for entry in (path / "figures").iterdir()) == ["gates.png", "learning_curve.png"]
    assert [entry.name for entry in (path / "checkpoint").iterdir()] == ["state.npz"]
    assert list((path / "tensorboard").rglob("events.*"))
    assert run.config == CONFIG

    record = run.record
    assert (record.state, record.step, record.steps_per_epoch) == ("finished", 40, 10)
    assert record.parameters == runs.load_model(run).count_params()
    assert record.precision.reason == "asked for"
    assert record.data.labels == ("nw", "ne", "sw", "se")
    assert record.backend == keras.backend.backend()
    assert len(record.gates) == 3
    assert all(0 < gate < 0.5 for gate in record.gates.values())

    rows = metrics_file.read(path / "metrics.csv")
    assert list(rows[0])[:8] == [
        "epoch",
        "step",
        "seconds",
        "learning_rate",
        "loss",
        "accuracy",
        "val_loss",
        "val_accuracy",
    ]
    assert list(rows[0])[8:] == [f"gate/{layer}" for layer in record.gates]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.1, 0.1, 0.1, 1e-10])
    assert rows[-1]["val_accuracy"] > 0.9
    assert record.metrics["val_accuracy"] == pytest.approx(rows[-1]["val_accuracy"])
    # The last row was written before the nets and the last checkpoint.
    assert 0 < rows[0]["seconds"] < rows[-1]["seconds"] < record.seconds

    np.testing.assert_allclose(
        preprocess.load(path / "preprocess.npz").mean, toy.load("toy", "train").images.mean(0) / 255, rtol=1e-5
    )
    assert output.count("validation") == 4
    assert "finished" in (path / "report.md").read_text()


def test_saved_nets_reach_the_recorded_accuracy(whole, toy):
    run = whole[0]
    examples = toy.load("toy", "validation")
    images = preprocess.apply(preprocess.load(run.path / "preprocess.npz"), examples.images)
    rows = metrics_file.read(run.path / "metrics.csv")

    def accuracy(weights):
        return (runs.load_model(run, weights).predict(images, verbose=0).argmax(1) == examples.labels).mean()

    best = max(row["val_accuracy"] for row in rows)
    assert accuracy("final") == pytest.approx(rows[-1]["val_accuracy"])
    assert accuracy("best") == pytest.approx(best)
    assert run.record.metrics["best_val_accuracy"] == pytest.approx(best)
    # Of equally accurate epochs, the one with the lowest loss is the best; the last two are equal.
    assert rows[-1]["val_accuracy"] == rows[-2]["val_accuracy"] == best
    best_row = min((row for row in rows if row["val_accuracy"] == best), key=lambda row: row["val_loss"])
    assert run.record.metrics["best_epoch"] == best_row["epoch"]


def test_the_test_split_never_steers_training(whole):
    assert whole[2] == {"train", "validation"}


def test_without_validation_no_best_net_is_saved(undrawn, monkeypatch, tmp_path):
    toy = ToyData(validation=False).install(monkeypatch)
    run, _ = train_run(tmp_path / "toy", toy_config(epochs=1))
    assert not (run.path / "best.keras").exists()
    assert "best_epoch" not in run.record.metrics
    assert set(toy.asked) == {"train"}


def test_a_net_without_gates_has_no_gate_figure(toy, tmp_path):
    model = ModelConfig(preset="mnist_dense_50_plain", depth=2, width=8)
    run, _ = train_run(tmp_path / "toy", toy_config(epochs=1, model=model))
    assert run.record.gates == {}
    assert not (run.path / "figures" / "gates.png").exists()


@pytest.mark.slow
def test_the_final_net_has_the_moving_average_of_the_weights(undrawn, toy, plain, tmp_path):
    mean, _ = train_run(tmp_path / "mean", toy_config(optimizer=SGD(learning_rate=0.1, ema=0.8)))
    plain_rows, rows = metrics_file.read(plain.path / "metrics.csv"), metrics_file.read(mean.path / "metrics.csv")
    # Validation with the average leaves training bit-identical.
    assert [row["loss"] for row in rows] == [row["loss"] for row in plain_rows]
    assert [row["val_loss"] for row in rows] != [row["val_loss"] for row in plain_rows]
    examples = toy.load("toy", "validation")
    logits = runs.load_model(mean).predict((examples.images / 255).astype("float32"), verbose=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(examples.labels, logits)
    assert float(loss) == pytest.approx(rows[-1]["val_loss"], rel=1e-5)
    gates = mean_gates(runs.load_model(mean), (examples.images / 255).astype("float32"))
    assert {name: rows[-1][f"gate/{name}"] for name in gates} == pytest.approx(gates, rel=1e-4)
    # Before the first step, there is no average.
    assert mean.record.gates == pytest.approx(plain.record.gates)
    with (
        np.load(plain.path / "checkpoint" / "state.npz") as one,
        np.load(mean.path / "checkpoint" / "state.npz") as two,
    ):
        np.testing.assert_array_equal(one["variable-00000"], two["variable-00000"])


@pytest.mark.parametrize("precision", [pytest.param("mixed_bfloat16", marks=pytest.mark.slow), "mixed_float16"])
def test_mixed_precision_learns_and_keeps_float32_weights(undrawn, toy, tmp_path, precision):
    run, _ = train_run(tmp_path / "toy", toy_config(epochs=3, precision=precision))
    rows = metrics_file.read(run.path / "metrics.csv")
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    model = runs.load_model(run)
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert any(layer.compute_dtype == precision.removeprefix("mixed_") for layer in model.layers)
    assert keras.config.dtype_policy().name == "float32"


def test_several_steps_per_execution_learn_the_same(undrawn, toy, plain, tmp_path):
    many, _ = train_run(tmp_path / "many", toy_config(steps_per_execution=5))
    losses = [[row["loss"] for row in metrics_file.read(run.path / "metrics.csv")] for run in (plain, many)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_divergence_stops_the_run_and_keeps_the_last_good_state(toy, tmp_path, capsys, monkeypatch):
    path = tmp_path / "toy"
    schedule = CosineSchedule(warmup_steps=12)
    model = ModelConfig(preset="mnist_dense_50", depth=4, width=12, activation="relu")
    config = toy_config(epochs=3, model=model, schedule=schedule, optimizer=SGD(learning_rate=1e30))
    with pytest.raises(
        UserError, match=r"not finite at step \d+\..*--optimizer\.learning-rate.*--optimizer\.clip-norm"
    ):
        train_run(path, config)
    run = runs.open_run(path)
    assert run.record.state == "diverged"
    assert not (path / "model.keras").exists()
    assert all(math.isfinite(row["loss"]) for row in metrics_file.read(path / "metrics.csv"))
    assert main(["train", "--resume", str(path)]) == 2
    assert "diverged, and would do so again" in capsys.readouterr().err
    assert main(["evaluate", str(path)]) == 2
    assert "its training diverged" in capsys.readouterr().err


def test_a_folder_in_use_is_refused_and_unchanged(toy, tmp_path, monkeypatch, capsys):
    (tmp_path / "toy").mkdir()
    with pytest.raises(UserError, match="exists already"):
        train_run(tmp_path / "toy")
    assert not list((tmp_path / "toy").iterdir())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    assert main(["train", "demo"]) == 2
    assert "runs/demo exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 201}, "larger than the 200 training examples"),
        ({"model": ModelConfig(preset="mnist_conv_16", width=3, match="width")}, "cannot be built for toy .*match"),
        ({"schedule": CosineSchedule(warmup_steps=20)}, "warm-up of 20 steps"),
    ],
)
def test_a_user_error_leaves_no_folder(toy, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        train_run(tmp_path / "runs" / "toy", toy_config(**changes))
    assert not list(tmp_path.iterdir())


def test_images_too_small_for_the_net_are_refused(monkeypatch, tmp_path):
    ToyData(side=4).install(monkeypatch)
    with pytest.raises(UserError, match=r"'mnist_conv_16' cannot be built for toy .inputs of 4x4x1, outputs: 4."):
        train_run(tmp_path / "toy", toy_config(model=ModelConfig(preset="mnist_conv_16")))
    assert not list(tmp_path.iterdir())


def test_the_command_line_trains_in_a_folder_named_after_the_recipe(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--model.depth", "3", "--model.width", "8", "--epochs", "1", "--batch-size", "20"]
    assert main(["train", "mnist_dense_50", *words]) == 0
    said = capsys.readouterr().out
    assert "next: highway evaluate runs/mnist_dense_50" in said
    record = json.loads((tmp_path / "runs" / "mnist_dense_50" / "run.json").read_text())
    assert record["state"] == "finished"
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*")}
    assert main(["train", "--resume", "runs/mnist_dense_50"]) == 0
    again = capsys.readouterr().out
    assert again.startswith("runs/mnist_dense_50 is finished; for more epochs, start a new run")
    assert again.endswith(said[said.index("trained") :])
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*")} == before


def test_without_a_better_score_training_ends_early(toy, undrawn, tmp_path):
    schedule = StepSchedule(boundaries=(10,), factor=1e-9)
    run, output = train_run(tmp_path / "run", toy_config(epochs=8, patience=2, schedule=schedule), interval=1000)
    assert (run.record.state, run.record.step, len(metrics_file.read(run.path / "metrics.csv"))) == ("finished", 30, 3)
    # The losses of equally accurate epochs still choose the weights.
    losses = [row["val_loss"] for row in metrics_file.read(run.path / "metrics.csv")]
    best = 1 + losses.index(min(losses))
    ended = "stopped after epoch 3: the validation score has not improved for 2 epochs; --weights best takes epoch"
    assert f"{ended} {best}" in output
    assert "(3 of 8 epochs)" in (run.path / "report.md").read_text()
    # The state after the last step is saved, however seldom others are.
    with np.load(run.path / NEWEST) as arrays:
        assert json.loads(str(arrays["head"]))["progress"]["step"] == 30


def test_patience_needs_validation_examples(toy, tmp_path):
    toy.counts = {**toy.counts, "validation": 0}
    with pytest.raises(UserError, match="patience needs validation examples"):
        train_run(tmp_path / "run", toy_config(patience=2))
    assert not (tmp_path / "run").exists()


def test_incomplete_batches_a_superfluous_option_and_a_missing_gpu_are_mentioned(toy, undrawn, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "unused_gpus", lambda: "1")
    _, output = train_run(tmp_path / "run", toy_config(batch_size=30, validation=7))
    assert "2 epochs of 6 steps; 20 more examples start the next epoch" in output
    assert "note: the validation split of toy has 40 examples, not the 7 of --validation" in output
    assert "note: CUDA_VISIBLE_DEVICES is 1, but tensorflow finds no GPU: this run uses the CPU" in output
    _, output = train_run(tmp_path / "one", toy_config(batch_size=200, epochs=1, schedule=TrapezoidSchedule()))
    assert "note: the learning rate rises from 0, so the only step of this run changes no weights" in output
    assert output.count("note:") == 2


def test_settings_without_effect_are_noted(toy, undrawn, tmp_path):
    config = toy_config(
        preprocess=Preprocess(offset=0.5, contrast=1.0),
        augment=Augment(magnitude=0.5),
        optimizer=SGD(ema=0.999),
        schedule=StepSchedule(boundaries=(5, 20, 3000)),
    )
    _, output = train_run(tmp_path / "run", config)
    assert "note: --augment.magnitude has no effect without RandAugment: add --augment.rand-augment 2" in output
    assert "note: --preprocess.offset has no effect, because --preprocess.contrast cancels it" in output
    assert "note: the run ends after 20 steps: --schedule.boundaries has no effect at 20, 3,000" in output
    assert (
        "with --optimizer.ema 0.999, 98% of the average of the weights is still those after the first of 20" in output
    )


def test_settings_with_an_effect_are_not_noted(toy, undrawn, tmp_path):
    config = toy_config(
        preprocess=Preprocess(offset=0.5),
        augment=Augment(magnitude=0.5, rand_augment=1),
        optimizer=SGD(ema=0.9),
        schedule=StepSchedule(boundaries=(5, 19)),
    )
    assert "note:" not in train_run(tmp_path / "run", config)[1]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"small_side": 5}, "--small-side has no effect: --small-share 0.5 of 1 epoch is less than one"),
        ({"small_share": 0.3}, "--small-share has no effect without --small-side"),
    ],
)
def test_a_smaller_size_without_an_epoch_is_mentioned(toy, undrawn, tmp_path, changes, note):
    stages = (StageConfig(filters=3, pool="average"),)
    config = toy_config(model=ModelConfig(preset="mnist_conv_16", stages=stages), epochs=1, batch_size=200, **changes)
    assert f"note: {note}\n" in train_run(tmp_path / "run", config)[1]

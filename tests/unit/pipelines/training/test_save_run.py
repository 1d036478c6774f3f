import signal

import keras
import numpy as np
import pytest

from pipelines.core.errors import StoppedError
from pipelines.core.optimizers import SGD, ConstantSchedule, CosineSchedule, StepSchedule
from pipelines.core.run import Run, create, open_run
from pipelines.core.signals import StopRequest
from pipelines.training import checkpoint, optimizers, schedules
from pipelines.training.callbacks import is_over
from pipelines.training.checkpoint import Progress, SaveTimer
from pipelines.training.save_run import SaveRun
from tests.toy_data import RECORD, toy_config


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (ConstantSchedule(), [0.5, 0.5]),
        (StepSchedule(boundaries=(10,), factor=0.1), [0.5, 0.05]),
        (CosineSchedule(), [0.25 * (1 + np.cos(np.pi * step / 20)) for step in (9, 19)]),
    ],
)
def test_the_learning_rate_of_an_epoch_is_that_of_its_last_step(tmp_path, schedule, rates):
    record = RECORD.model_copy(update={"steps_per_epoch": 10})
    run = Run(tmp_path, toy_config(epochs=2, schedule=schedule, optimizer=SGD(learning_rate=0.5)), record, writes=False)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizers.build(run.config.optimizer, schedules.rate(schedule, 0.5, 20)), "mse")
    save = SaveRun(run, model, Progress(), timer=SaveTimer("auto", 0), stop=StopRequest(), tensorboard=None)
    save.set_model(model)
    logged = [{}, {}]
    for epoch, logs in enumerate(logged):
        model.optimizer.iterations.assign(10 * (epoch + 1))
        save.on_epoch_end(epoch, logs)
    assert [logs["learning_rate"] for logs in logged] == pytest.approx(rates, rel=1e-5)


@pytest.mark.parametrize("plain", ["cross_entropy", "mse"])
def test_a_smaller_penalty_does_not_make_an_epoch_the_best(tmp_path, plain):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    run, progress = Run(tmp_path, toy_config(), RECORD, writes=False), Progress()
    save = SaveRun(run, model, progress, timer=SaveTimer("auto", 0), stop=StopRequest(), tensorboard=None)
    save.set_model(model)
    model.optimizer.iterations.assign(1)
    save.on_epoch_end(0, {plain: 0.5, "loss": 3.5, f"val_{plain}": 0.5, "val_loss": 3.5})
    save.on_epoch_end(1, {plain: 0.75, "loss": 1.75, f"val_{plain}": 0.75, "val_loss": 1.75})
    assert (progress.best_epoch, progress.best, progress.best_loss) == (1, -0.5, 0.5)


def test_a_checkpoint_within_an_epoch_is_recorded(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    run = create(tmp_path / "run", toy_config(epochs=2), RECORD)
    progress = Progress()
    save = SaveRun(run, model, progress, timer=SaveTimer(4, 0), stop=StopRequest(), tensorboard=None)
    save.set_model(model)
    recorded = []
    for batch in range(9):
        progress.step = batch + 1
        save.on_train_batch_end(batch)
        recorded.append(open_run(run.path).record.step)
    assert recorded == [0, 0, 0, 4, 4, 4, 4, 8, 8]


@pytest.mark.parametrize(("interval", "saved"), [(10, [10, 20]), (20, [20]), (1000, [20])])
def test_an_epoch_is_recorded_after_its_checkpoint_if_one_is_due(tmp_path, monkeypatch, interval, saved):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    run, progress, events = create(tmp_path / "run", toy_config(epochs=2), RECORD), Progress(), []
    monkeypatch.setattr(checkpoint, "save", lambda *_: events.append(("saved", progress.step)))
    monkeypatch.setattr(run, "update", lambda **changes: events.append(("recorded", changes["step"])))
    save = SaveRun(run, model, progress, timer=SaveTimer(interval, 0), stop=StopRequest(), tensorboard=None)
    save.set_model(model)
    for epoch in range(2):
        progress.step += 10
        model.optimizer.iterations.assign(progress.step)
        save.on_epoch_end(epoch, {"val_accuracy": 0.5})
    assert events == [
        event for step in (10, 20) for event in (*[("saved", step)] * (step in saved), ("recorded", step))
    ]


def test_processes_whose_scores_differ_wait_for_the_last_one_to_run_out_of_patience(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    run = Run(tmp_path, toy_config(epochs=9, patience=2), RECORD, writes=False)
    progress = Progress(step=30, best=0.5, best_epoch=1)
    # Another process has seen a better score after epoch 2.
    save = SaveRun(
        run, model, progress, timer=SaveTimer("auto", 0), stop=StopRequest(), tensorboard=None,
        highest=lambda own: max(own, 2 * bool(own)),
    )  # fmt: skip
    save.set_model(model)
    assert is_over(run, progress)
    save.on_epoch_end(2, {"val_accuracy": 0.5})
    assert (progress.improved_epoch, is_over(run, progress)) == (2, False)
    progress.step = 40
    assert is_over(run, progress)


def test_epochs_with_smaller_images_cost_no_patience(tmp_path):
    config = toy_config(epochs=8, patience=2, small_side=4, small_share=0.5)
    run = Run(tmp_path, config, RECORD, writes=False)
    ends = [is_over(run, Progress(step=RECORD.steps_per_epoch * epoch, improved_epoch=1)) for epoch in range(1, 9)]
    assert ends == [False] * 5 + [True] * 3


@pytest.mark.parametrize(
    ("slowest", "asked"), [(0.0, [8]), (0.12, [4, 8]), (0.3, [*range(1, 12)]), (2.0, [*range(1, 12)])]
)
def test_processes_ask_each_other_for_signals_twice_a_second(tmp_path, monkeypatch, slowest, asked):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    steps_per_epoch, seconds, asked_after, passed = 20, 0.0, [], []
    run = Run(
        tmp_path, toy_config(epochs=9), RECORD.model_copy(update={"steps_per_epoch": steps_per_epoch}), writes=False
    )
    progress = Progress()
    monkeypatch.setattr("pipelines.training.save_run.time.perf_counter", lambda: seconds)
    other = 0

    def highest(own):
        asked_after.append(progress.step)
        passed.append(own)
        return max(own, other)

    save = SaveRun(
        run, model, progress, timer=SaveTimer("auto", 0), stop=StopRequest(), tensorboard=None, highest=highest
    )
    save.set_model(model)

    def train(last):
        nonlocal seconds
        while progress.step < last:
            # The first step compiles the net.
            seconds += 1 / 16 if progress.step else 9.0
            progress.step += 1
            save.on_train_batch_end(0)

    save.on_epoch_begin(0)
    train(steps_per_epoch)
    assert asked_after == [*range(1, steps_per_epoch)]
    # Validation takes longer than training.
    seconds, other = seconds + 99, round(1e6 * slowest)
    monkeypatch.setattr(save, "_save_if_due", lambda: None)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    monkeypatch.undo()
    assert passed[-1] == 62_500
    other, save.asked = 0, steps_per_epoch
    asked_after.clear()
    save.on_epoch_begin(1)
    train(steps_per_epoch + 11)
    assert [step - steps_per_epoch for step in asked_after] == asked
    other = signal.SIGTERM
    with pytest.raises(StoppedError, match=r"stopped by SIGTERM after step (32|36) "):
        train(2 * steps_per_epoch)

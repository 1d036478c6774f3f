import io

import pytest
from rich.console import Console

from pipelines.training.checkpoint import Progress
from pipelines.training.progress import TrainingProgress


def shown(terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=160, color_system=None)
    progress = Progress(step=4)
    with TrainingProgress(console, epochs=3, steps_per_epoch=4, batch_size=10, progress=progress) as bar:
        bar.on_train_begin()
        for epoch in (1, 2):
            bar.on_epoch_begin(epoch)
            bar.shown = 0.0
            for batch in range(4):
                progress.step += 1
                bar.on_train_batch_end(batch, {"loss": 1.5, "accuracy": 0.25})
            bar.on_epoch_end(epoch, {"loss": 1.25, "accuracy": 0.5, "val_accuracy": 0.75})
    return file.getvalue()


def test_a_line_per_epoch_without_a_terminal():
    first, second = shown(terminal=False).splitlines()
    assert first.startswith("epoch 2/3  loss 1.2500  accuracy 50.00%  validation 75.00%  ")
    assert second.startswith("epoch 3/3  ")
    assert "examples/s" in second


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    ("logs", "short", "long"),
    [
        # The loss of a regression may be small in any unit.
        (
            {"loss": 0.0000125, "mae": 0.005, "val_mae": 0.0075},
            "loss 1.25e-05  error 0.005  val 0.0075",
            "loss 1.25e-05  mean error 0.005  validation 0.0075",
        ),
        (
            {"loss": 1.25, "label_accuracy": 0.9, "f1": 0.5, "val_f1": 0.75},
            "loss 1.250  F1 0.500  val 0.75",
            "loss 1.2500  labels right 90.00%  macro F1 0.500  validation 0.750",
        ),
    ],
)
def test_other_tasks_show_their_own_scores(terminal, logs, short, long):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160, color_system=None)
    with TrainingProgress(console, epochs=1, steps_per_epoch=1, batch_size=10, progress=Progress()) as bar:
        bar.on_train_begin()
        bar.on_epoch_begin(0)
        bar.on_epoch_end(0, logs)
    assert (short if terminal else long) in console.file.getvalue()


def test_a_bar_on_a_terminal():
    text = shown(terminal=True)
    assert "epoch 2/3" in text
    assert "100%" in text
    assert "loss 1.250  acc 50.0%  val 75.0%" in text


def test_a_run_that_fails_leaves_no_live_display():
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(ZeroDivisionError), TrainingProgress(console, 3, 4, 10, Progress()):
        raise ZeroDivisionError
    with TrainingProgress(console, 3, 4, 10, Progress()):
        pass

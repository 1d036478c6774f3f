"""`fit` from where a run stands to its end, with all that is kept on the way."""

from pathlib import Path

import keras
import numpy as np
from rich.console import Console

from highway_keras.callbacks import MeanGates
from pipelines.data import batches, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.run import Run
from pipelines.training import table
from pipelines.training.checkpoint import State
from pipelines.training.curves import Curves
from pipelines.training.intervals import Interval, Saves
from pipelines.training.keeping import Count, Keep, StopOnNaN, ValidateAveraged
from pipelines.training.progress import ProgressBar
from pipelines.training.stopping import on_signals

# Examples on which the mean gates are read after each epoch.
GATE_EXAMPLES = 256


def fit(
    run: Run,
    net: keras.Model,
    model: keras.Model,
    *,
    fitted: Fitted,
    examples: Examples | Stream,
    data_dir: Path | None,
    state: State,
    interval: Interval,
    console: Console,
) -> None:
    """Trains a model to the last step of its run.

    Args:
        run: the run directory.
        net: the net alone, without loss and optimiser.
        model: the same weights, compiled.
        fitted: the preprocessing.
        examples: for training.
        data_dir: where prepared data lies; None for the default of TFDS.
        state: where the run stands; its progress is changed in place.
        interval: steps between two checkpoints.
        console: for progress.

    Raises:
        DivergedError: the loss is no longer finite.
        StoppedError: a signal asked for the end; the state of the last step is saved.
    """
    config, progress = run.config, state.progress
    classes, steps_per_epoch = len(run.record.data.labels), run.record.steps_per_epoch
    held_out = None
    if run.record.data.counts["validation"]:
        held_out = sources.load(config.data, "validation", data_dir, config.validation)
    shown = batches.evaluation(held_out or examples, fitted, batch_size=GATE_EXAMPLES, classes=classes)
    gates = MeanGates(next(iter(shown))[0].numpy())
    if not progress.step:
        run.update(gates=_initial_gates(gates, model))
    validation = (
        batches.evaluation(held_out, fitted, batch_size=config.batch_size, classes=classes) if held_out else None
    )
    with (
        ProgressBar(console, config.epochs, steps_per_epoch, config.batch_size, progress) as bar,
        Curves(run.path / "tensorboard", table.read(run.path / "metrics.csv")) as curves,
        on_signals(console) as stop,
    ):
        # A callback sees what those before it have counted, and put into the logs.
        callbacks = [
            *([ValidateAveraged()] if config.optimizer.ema is not None else []),
            Count(progress, state.metrics),
            StopOnNaN(progress),
            gates,
            Keep(run, net, progress, Saves(interval, progress.step), stop, curves),
            bar,
        ]

        def train(epochs: int, *more: keras.callbacks.Callback) -> None:
            epoch, done = divmod(progress.step, steps_per_epoch)
            training = batches.training(
                examples,
                fitted,
                augment=config.augment,
                batch_size=config.batch_size,
                seed=config.seed,
                first_step=progress.step,
                steps=epochs * steps_per_epoch,
                classes=classes,
            )
            model.fit(
                training,
                validation_data=validation,
                initial_epoch=epoch,
                epochs=epochs,
                steps_per_epoch=steps_per_epoch - done,
                callbacks=[*callbacks, *more],
                shuffle=False,
                verbose=0,
            )

        if progress.step % steps_per_epoch:
            # All epochs of a call are of one length, and it ends by putting the mean of the weights in their place.
            weights: list[np.ndarray] = []
            keep = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: weights.extend(_values(model)))
            train(progress.step // steps_per_epoch + 1, keep)
            for variable, value in zip(model.trainable_variables, weights, strict=True):
                variable.assign(value)
        if progress.step < config.epochs * steps_per_epoch:
            train(config.epochs)


def _values(model: keras.Model) -> list[np.ndarray]:
    return [np.array(variable.numpy()) for variable in model.trainable_variables]


def _initial_gates(gates: MeanGates, model: keras.Model) -> dict[str, float]:
    logs: dict[str, float] = {}
    gates.set_model(model)
    gates.on_train_begin()
    gates.on_epoch_end(-1, logs)
    return {name.removeprefix("gate/"): value for name, value in logs.items()}

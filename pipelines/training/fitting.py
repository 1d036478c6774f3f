"""From where a run stands to its end, with all that is kept on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from rich.console import Console

from highway_keras.callbacks import MeanGates
from pipelines.core.errors import UserError
from pipelines.core.files import replacing
from pipelines.core.run import FILES, Run
from pipelines.data import batches, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import table
from pipelines.training.callbacks import CHECKPOINTS, Count, DivergedError, Keep, StopOnNaN, ValidateAveraged, record
from pipelines.training.checkpoint import PREVIOUS, TrainingState
from pipelines.training.intervals import Interval, Saves
from pipelines.training.probe import WATCHED, Probes
from pipelines.training.probe_callback import ProbeCallback
from pipelines.training.progress import ProgressBar
from pipelines.training.stopping import on_signals
from pipelines.training.tensorboard_log import Curves

# Examples on which the mean gates are read after each epoch.
GATE_EXAMPLES = 256


@dataclass(frozen=True)
class Training:
    """All that a run needs to be trained to its end.

    Args:
        run: the run directory.
        net: the net alone, without loss and optimiser, so that it can be saved.
        model: the same weights, compiled.
        fitted: the preprocessing.
        examples: for training.
        data_dir: where prepared data lies; None for the default of TFDS.
        state: where the run stands; its progress is changed in place.
        interval: steps between two checkpoints.
        console: for progress.
        callbacks: called after those of every run; an error of theirs ends the training where it is.
        probe: what is measured on the way; None for nothing.
    """

    run: Run
    net: keras.Model
    model: keras.Model
    fitted: Fitted
    examples: Examples | Stream
    data_dir: Path | None
    state: TrainingState
    interval: Interval
    console: Console
    callbacks: Sequence[keras.callbacks.Callback] = ()
    probe: Probes | None = None


def finish(training: Training) -> None:
    """Trains a run to its last step, and keeps the net.

    Args:
        training: the run and all that it needs.

    Raises:
        UserError: training diverged.
        StoppedError: a signal asked for the end; the state of the last step is saved.
    """
    run, model = training.run, training.model
    try:
        _fit(training)
    except DivergedError as error:
        run.update(state="diverged")
        raise UserError(_diverged(run, error.step)) from error
    # Puts the running mean of the weights in their place, where there is one; `fit` has done so unless it had no epoch.
    model.optimizer.finalize_variable_values(model.trainable_variables)
    with replacing(run.path / FILES["final"]) as aside:
        training.net.save(aside)
    (run.path / CHECKPOINTS / PREVIOUS).unlink(missing_ok=True)
    # Once more: a run that was killed between its last checkpoint and this line comes here without an epoch.
    record(run, training.state.progress)
    run.update(state="finished")


def _fit(training: Training) -> None:
    run, model, examples, fitted = training.run, training.model, training.examples, training.fitted
    config, progress, console = run.config, training.state.progress, training.console
    classes, steps_per_epoch = len(run.record.data.labels), run.record.steps_per_epoch
    held_out = None
    if run.record.data.counts["validation"]:
        held_out = sources.load(config.data, "validation", training.data_dir, config.validation)
    shown = batches.evaluation(held_out or examples, fitted, batch_size=GATE_EXAMPLES, classes=classes)
    gates = MeanGates(next(iter(shown))[0].numpy())
    if not progress.step:
        run.update(gates=_initial_gates(gates, model))
    probes = (
        [ProbeCallback(run.path / WATCHED, training.net, progress, training.probe(run, training.data_dir))]
        if training.probe
        else []
    )
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
            # Those of an epoch that is over have been of its validation since.
            Count(progress, training.state.metrics if progress.step % steps_per_epoch else ()),
            StopOnNaN(progress),
            *probes,
            gates,
            bar,
            Keep(
                run,
                training.net,
                progress,
                saves=Saves(training.interval, progress.step),
                stop=stop,
                curves=curves,
            ),
            *training.callbacks,
        ]

        def train(epochs: int, *more: keras.callbacks.Callback) -> None:
            epoch, done = divmod(progress.step, steps_per_epoch)
            rest = batches.training(
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
                rest,
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


def _diverged(run: Run, step: int) -> str:
    settings = run.config.optimizer
    clip = "" if settings.clip_norm else ", clip the gradient with --optimizer.clip-norm 1"
    exact = "" if run.record.precision.policy == "float32" else ", train in --precision float32"
    return (
        f"training diverged: the loss was not finite at step {step:,}. Start a new run with a lower "
        f"--optimizer.learning-rate (it was {settings.learning_rate:g}){clip}{exact}. {run.path} is kept as it is."
    )

"""Trains a net from the progress of its run to the end, saving everything along the way."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from rich.console import Console

from pipelines.core import signals
from pipelines.core.console import say
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.files import replacing
from pipelines.core.run import FILES, Run
from pipelines.data import batches, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import metrics_file, trackers
from pipelines.training.callbacks import (
    STEPS_FILE,
    AveragedGates,
    DivergedError,
    ProbeCallback,
    StepCounter,
    StepCurve,
    StopEarly,
    StopOnNaN,
    ValidateAveraged,
    is_over,
)
from pipelines.training.checkpoint import Interval, SaveTimer, TrainingState
from pipelines.training.checkpoint_file import CHECKPOINTS, PREVIOUS
from pipelines.training.exchange import Exchange
from pipelines.training.probe import PROBE_FILE, Probes
from pipelines.training.progress import TrainingProgress
from pipelines.training.save_run import SaveRun, record
from pipelines.training.tensorboard_log import TensorBoardLog

# Number of examples over which mean gates are taken after each epoch.
GATE_EXAMPLES = 256


@dataclass(frozen=True)
class Options:
    """Options of the process that trains a run; none of them changes its numbers, except for rounding.

    Args:
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress.
        interval: steps between two checkpoints; "auto" keeps their cost below 0.2% of the time.
        callbacks: further callbacks, called after the built-in ones; an error that they raise ends training at once.
        probe: measurements during training; None for none.
        track: experiment tracker to report to; None for none.
        devices: number of devices of this process to divide each batch among; None chooses it.
        exchange: connection with the other processes that train the run; None if there are none.
        again: further options of the command that resumes the run, for messages.
    """

    data_dir: Path | None
    console: Console
    interval: Interval = "auto"
    callbacks: Sequence[keras.callbacks.Callback] = ()
    probe: Probes | None = None
    track: trackers.TrackerName | None = None
    devices: int | None = None
    exchange: Exchange | None = None
    again: Sequence[str] = ()


@dataclass(frozen=True)
class Training:
    """Everything needed to train a run to its end.

    Args:
        run: the run directory.
        net: the net without loss and optimizer, so that it can be saved.
        model: a compiled model with the same weights.
        fitted: the preprocessing.
        examples: the training examples.
        state: the state of the run; its progress is changed in place.
        options: options of this process.
    """

    run: Run
    net: keras.Model
    model: keras.Model
    fitted: Fitted
    examples: Examples | Stream
    state: TrainingState
    options: Options


def finish(training: Training) -> None:
    """Trains a run to its last step and saves the net.

    Args:
        training: the run and everything it needs.

    Raises:
        UserError: training diverged.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    run, model, options = training.run, training.model, training.options
    disconnect: Callable[[], None] = options.exchange.end if options.exchange else lambda: None
    try:
        _fit(training)
    except StoppedError:
        disconnect()
        raise
    except DivergedError as error:
        disconnect()
        run.update(state="diverged")
        raise UserError(_diverged(run, error.step)) from error
    if options.exchange:
        # From here on, the first one continues alone; also if it dies and is started again, as the others have ended.
        run.update(trained=True)
    disconnect()
    if not run.writes:
        return
    # Replaces the weights with their moving average, if there is one. `fit` does so too, unless no epoch was left.
    model.optimizer.finalize_variable_values(model.trainable_variables)
    with replacing(run.path / FILES["final"]) as aside:
        training.net.save(aside)
    (run.path / CHECKPOINTS / PREVIOUS).unlink(missing_ok=True)
    # Repeated for a run that was killed between its last checkpoint and this line: it has no epoch left to record.
    record(run, training.state.progress)
    run.update(state="finished", trained=False)


def _fit(training: Training) -> None:
    run, model, examples, fitted = training.run, training.model, training.examples, training.fitted
    config, progress, options = run.config, training.state.progress, training.options
    classes, steps_per_epoch = len(run.record.data.labels), run.record.steps_per_epoch
    held_out = None
    if run.record.data.counts["validation"]:
        held_out = sources.load(config.data, "validation", options.data_dir, config.validation)
    measuring = _measuring(training, held_out or examples) if run.writes else []
    validation = (
        batches.evaluation(held_out, fitted, batch_size=config.batch_size, classes=classes) if held_out else None
    )
    with (
        TrainingProgress(options.console, config.epochs, steps_per_epoch, config.batch_size, progress) as display,
        _tensorboard(run) if run.writes else nullcontext() as tensorboard,
        signals.noted(options.console) as stop,
        trackers.reporting(run, options.track, options.console, options.again) as reports,
    ):
        # The order matters: a callback sees the counts and logs of the ones before it.
        callbacks = [
            *([ValidateAveraged()] if config.optimizer.ema is not None else []),
            # After an epoch, the running metrics are those of its validation, which must not be restored.
            StepCounter(progress, training.state.metrics if progress.step % steps_per_epoch else ()),
            StopOnNaN(progress),
            *([StepCurve(run.path / STEPS_FILE, progress, steps_per_epoch, tensorboard)] if tensorboard else []),
            *measuring,
            display,
            SaveRun(
                run,
                training.net,
                progress,
                timer=SaveTimer(options.interval, progress.step),
                stop=stop,
                tensorboard=tensorboard,
                highest=options.exchange.highest if options.exchange else None,
                again=options.again,
            ),
            StopEarly(run, progress),
            *reports,
            *options.callbacks,
        ]

        small, shape = config.small_epochs, run.record.data.shape
        # The images of a `fit` have one size, and its epochs one length, so the rest of an epoch needs its own.
        for epochs in sorted({small, config.epochs, -(-progress.step // steps_per_epoch)}):
            if epochs * steps_per_epoch <= progress.step or is_over(run, progress):
                continue
            epoch, done = divmod(progress.step, steps_per_epoch)
            if small and epoch == small:
                # TensorFlow would replace a program for images of another size by one for images of any size.
                model.make_train_function(force=True)
            rest = batches.of_config(
                config,
                examples,
                fitted,
                classes=classes,
                steps=epochs * steps_per_epoch,
                first_step=progress.step,
                size=config.small_size(*shape[:2]) if epoch < small else None,
                shard=options.exchange.hosts.shard if options.exchange else (0, 1),
            )
            kept = _Kept()
            model.fit(
                rest,
                validation_data=validation,
                initial_epoch=epoch,
                epochs=epochs,
                steps_per_epoch=steps_per_epoch - done,
                callbacks=callbacks if epochs == config.epochs else [*callbacks, kept],
                shuffle=False,
                verbose=0,
            )
            kept.restore(model)
    epochs = progress.step // steps_per_epoch
    if epochs < config.epochs:
        say(
            options.console,
            f"stopped after epoch {epochs}: the validation score has not improved for {config.patience} epochs; "
            f"--weights best takes epoch {progress.best_epoch}",
        )


def _tensorboard(run: Run) -> TensorBoardLog:
    rows, steps = (metrics_file.read(run.path / name) for name in ("metrics.csv", STEPS_FILE))
    return TensorBoardLog(run.path / "tensorboard", rows, steps)


def _measuring(training: Training, examples: Examples | Stream) -> list[keras.callbacks.Callback]:
    """Measures the gates before the first step, and returns the callbacks that measure later."""
    run, options, progress = training.run, training.options, training.state.progress
    classes = len(run.record.data.labels)
    shown = batches.evaluation(examples, training.fitted, batch_size=GATE_EXAMPLES, classes=classes)
    gates = AveragedGates(next(iter(shown))[0].numpy())
    if not progress.step:
        run.update(gates=_initial_gates(gates, training.model))
    if not options.probe:
        return [gates]
    probe = options.probe(run, options.data_dir)
    return [ProbeCallback(run.path / PROBE_FILE, training.net, progress, probe), gates]


class _Kept(keras.callbacks.Callback):
    """Keeps the weights at the end of an epoch, because any call to `fit` ends by replacing them with their average."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[np.ndarray] = []

    def on_epoch_end(self, _epoch: int, _logs: object = None) -> None:
        """Keras's hook."""
        self.values = [np.array(variable.numpy()) for variable in self.model.trainable_variables]

    def restore(self, model: keras.Model) -> None:
        """Restores them, if any were kept."""
        if self.values:
            for variable, value in zip(model.trainable_variables, self.values, strict=True):
                variable.assign(value)


def _initial_gates(gates: AveragedGates, model: keras.Model) -> dict[str, float]:
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
        f"--optimizer.learning-rate (it was {settings.learning_rate:g}){clip}{exact}. {run.path} stays as it is."
    )

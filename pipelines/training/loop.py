"""A training run from its start, or from where it was stopped, to its end."""

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path

import keras
from rich.console import Console

from highway_keras.callbacks import MeanGates
from pipelines import environment
from pipelines.config import Config
from pipelines.data import batches, preprocess, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.errors import UserError
from pipelines.files import replacing
from pipelines.run import FILES, DataRecord, Record, Run, create, locked, open_run, refuse_existing
from pipelines.training import checkpoint, table
from pipelines.training.checkpoint import Progress
from pipelines.training.keeping import CHECKPOINT, DivergedError, KeepEpoch, StopOnNaN, ValidateAveraged, record
from pipelines.training.net import build, compiled
from pipelines.training.precision import Policy, resolve
from pipelines.training.progress import ProgressBar

# Examples on which the mean gates are read after each epoch.
GATE_EXAMPLES = 256
# Curves for TensorBoard. Those of 999 layers took it more than a second an epoch, and nobody can tell them apart.
GATE_CURVES = 100


def start(
    config: Config,
    path: Path,
    data_dir: Path | None,
    console: Console,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Run:
    """Trains a new run to its end.

    Nothing is written before data, net and optimiser have been made: a mistake in the configuration leaves no folder.

    Args:
        config: what to train.
        path: the run directory to make.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress.
        callbacks: called after those of every run; an error of theirs ends the training where it is.

    Returns:
        The finished run.

    Raises:
        UserError: if the folder exists, the data or the net cannot be made, or training diverged.
    """
    refuse_existing(path)
    info = sources.describe(config.data, data_dir, config.validation)
    steps_per_epoch = info.counts["train"] // config.batch_size
    if not steps_per_epoch:
        raise UserError(
            f"a batch of {config.batch_size} is larger than the {info.counts['train']} training examples of "
            f"{info.name}. Lower --batch-size."
        )
    machine = environment.machine()
    net = build(config, info, "float32")
    precision = resolve(config.precision, net, machine)
    if precision.policy != "float32":
        net = build(config, info, precision.policy)
    accelerated = bool(machine.accelerators)
    model = compiled(net, config, precision.policy, steps_per_epoch, accelerated, regression=not info.labels)
    examples = sources.load(config.data, "train", data_dir, config.validation)
    fitted = preprocess.fit(config.preprocess, examples.images)
    created = Record(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=environment.command(),
        versions=environment.versions(),
        backend=keras.backend.backend(),
        code=environment.code(),
        machine=machine,
        precision=precision,
        data=DataRecord(**dataclasses.asdict(info)),
        parameters=net.count_params(),
        steps_per_epoch=steps_per_epoch,
    )
    run = create(path, config, created)
    with locked(run):
        preprocess.save(fitted, run.path / "preprocess.npz")
        _announce(run, console)
        _train(
            run,
            net,
            model,
            fitted=fitted,
            examples=examples,
            data_dir=data_dir,
            progress=Progress(),
            console=console,
            callbacks=callbacks,
        )
    return run


def resume(
    path: Path, data_dir: Path | None, console: Console, callbacks: Sequence[keras.callbacks.Callback] = ()
) -> Run:
    """Goes on with a run that was stopped, from the end of its last epoch, to its end.

    Args:
        path: the run directory.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress.
        callbacks: called after those of every run; an error of theirs ends the training where it is.

    Returns:
        The finished run.

    Raises:
        UserError: if there is nothing to go on with, a file is damaged, or the data or the backend is another.
    """
    run = open_run(path)
    with locked(run):
        # The other process may have finished it between the two lines above.
        run = open_run(path)
        config = run.config
        _refuse_resuming(run)
        info = sources.describe(config.data, data_dir, config.validation)
        if DataRecord(**dataclasses.asdict(info)) != run.record.data:
            raise UserError(
                f"the data is not what {path} was trained on: {info.name} {info.version} with {info.counts}, and "
                f"before {run.record.data.version} with {run.record.data.counts}. Point --data-dir at the first."
            )
        precision: Policy = run.record.precision.policy
        net = build(config, info, precision)
        accelerated = bool(environment.accelerators())
        steps_per_epoch = run.record.steps_per_epoch
        model = compiled(net, config, precision, steps_per_epoch, accelerated, regression=not info.labels)
        kept = path / CHECKPOINT
        progress = checkpoint.load(kept, model) if kept.exists() else Progress()
        examples = sources.load(config.data, "train", data_dir, config.validation)
        fitted = _fitted(run, examples)
        table.truncate(path / "metrics.csv", progress.epoch)
        _announce(run, console)
        if progress.epoch:
            console.print(f"goes on after epoch {progress.epoch}", highlight=False)
        _train(
            run,
            net,
            model,
            fitted=fitted,
            examples=examples,
            data_dir=data_dir,
            progress=progress,
            console=console,
            callbacks=callbacks,
        )
    return run


def _refuse_resuming(run: Run) -> None:
    if run.record.state == "finished":
        raise UserError(
            f"{run.path} is finished: all {run.config.epochs} epochs are done. Look at it with "
            f"`highway evaluate {run.path}`; for more epochs start a new run with --epochs."
        )
    if run.record.state == "diverged":
        raise UserError(
            f"{run.path} diverged, and would again. Start a new run with a lower --optimizer.learning-rate, "
            "or with --optimizer.clip-norm."
        )
    if run.record.backend != keras.backend.backend():
        raise UserError(
            f"{run.path} was started on the backend {run.record.backend}, and this is {keras.backend.backend()}. "
            f"Set KERAS_BACKEND={run.record.backend}."
        )


def _fitted(run: Run, examples: Examples | Stream) -> Fitted:
    path = run.path / "preprocess.npz"
    if not path.exists():
        # Killed between making the folder and writing the file.
        preprocess.save(preprocess.fit(run.config.preprocess, examples.images), path)
    return preprocess.load(path)


def _announce(run: Run, console: Console) -> None:
    record, data, epochs = run.record, run.record.data, run.config.epochs
    console.print(
        f"{run.config.recipe}: {record.parameters:,} parameters, {data.counts['train']:,} training examples of "
        f"{data.name}, {epochs} {'epoch' if epochs == 1 else 'epochs'} of {record.steps_per_epoch:,} steps\n"
        f"precision {record.precision.policy} ({record.precision.reason}), run directory {run.path}",
        highlight=False,
        soft_wrap=True,
    )


def _train(
    run: Run,
    net: keras.Model,
    model: keras.Model,
    *,
    fitted: Fitted,
    examples: Examples | Stream,
    data_dir: Path | None,
    progress: Progress,
    console: Console,
    callbacks: Sequence[keras.callbacks.Callback],
) -> None:
    config, data = run.config, run.record.data
    classes, steps_per_epoch = len(data.labels), run.record.steps_per_epoch
    held_out = None
    if data.counts["validation"]:
        held_out = sources.load(config.data, "validation", data_dir, config.validation)
    shown = batches.evaluation(held_out or examples, fitted, batch_size=GATE_EXAMPLES, classes=classes)
    gates = MeanGates(next(iter(shown))[0].numpy())
    if not progress.epoch:
        run.update(gates=_initial_gates(gates, model))
    board = keras.callbacks.TensorBoard(run.path / "tensorboard", write_graph=False)
    # A callback sees what those before it have put into the logs; KeepEpoch sees the gates in any case.
    gates_and_board = [gates, board] if len(run.record.gates) <= GATE_CURVES else [board, gates]
    bar = ProgressBar(console, config.epochs, steps_per_epoch, config.batch_size, progress.epoch)
    hooks = [
        *([ValidateAveraged()] if config.optimizer.ema is not None else []),
        StopOnNaN(steps_per_epoch),
        *gates_and_board,
        KeepEpoch(run, net, progress),
        bar,
        *callbacks,
    ]
    training = batches.training(
        examples,
        fitted,
        augment=config.augment,
        batch_size=config.batch_size,
        seed=config.seed,
        first_step=progress.epoch * steps_per_epoch,
        steps=config.epochs * steps_per_epoch,
        classes=classes,
    )
    validation = (
        batches.evaluation(held_out, fitted, batch_size=config.batch_size, classes=classes) if held_out else None
    )
    try:
        with bar:
            if progress.epoch < config.epochs:
                model.fit(
                    training,
                    validation_data=validation,
                    initial_epoch=progress.epoch,
                    epochs=config.epochs,
                    steps_per_epoch=steps_per_epoch,
                    callbacks=hooks,
                    shuffle=False,
                    verbose=0,
                )
    except DivergedError as error:
        run.update(state="diverged")
        raise UserError(_diverged(run, error.step)) from error
    # Puts the running mean of the weights in their place, where there is one; `fit` has done so unless it had no epoch.
    model.optimizer.finalize_variable_values(model.trainable_variables)
    with replacing(run.path / FILES["final"]) as aside:
        net.save(aside)
    # Once more: a run that was killed between its last checkpoint and this line comes here without an epoch.
    record(run, progress)
    run.update(state="finished")


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

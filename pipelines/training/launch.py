"""A training run from its start, or from where it was stopped, to its end."""

import dataclasses
import datetime
import math
from collections.abc import Sequence
from pathlib import Path

import keras
from rich.console import Console

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import remove_leftovers
from pipelines.core.run import DataRecord, Record, Run, create, locked, open_run, refuse_existing
from pipelines.data import preprocess, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import checkpoint, table
from pipelines.training.callbacks import CHECKPOINTS, record
from pipelines.training.checkpoint import TrainingState
from pipelines.training.fitting import Training, finish
from pipelines.training.intervals import Interval
from pipelines.training.net import build, compiled
from pipelines.training.precision import Policy
from pipelines.training.prepare import prepare
from pipelines.training.probe import WATCHED, Probes
from pipelines.training.probe_callback import cut

# Packages whose versions do not change the numbers that come next: what they decided is kept in the run.
INDIFFERENT = {"python", "numpy", "tensorflow-datasets"}


def start(
    config: Config,
    path: Path,
    data_dir: Path | None,
    console: Console,
    *,
    interval: Interval = "auto",
    callbacks: Sequence[keras.callbacks.Callback] = (),
    probe: Probes | None = None,
) -> Run:
    """Trains a new run to its end.

    Nothing is written before data, net and optimiser have been made: a mistake in the configuration leaves no folder.

    Args:
        config: what to train.
        path: the run directory to make.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress.
        interval: steps between two checkpoints; "auto" keeps what they cost below 2 % of the time.
        callbacks: called after those of every run; an error of theirs ends the training where it is.
        probe: what is measured on the way; None for nothing.

    Returns:
        The finished run.

    Raises:
        UserError: if the folder exists, the data or the net cannot be made, or training diverged.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    refuse_existing(path)
    ready = prepare(config, data_dir)
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.fit(config.preprocess, examples.images)
    created = Record(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=environment.command(),
        versions=environment.versions(),
        backend=keras.backend.backend(),
        code=environment.code(),
        machine=ready.machine,
        precision=ready.precision,
        data=DataRecord(**dataclasses.asdict(ready.data)),
        parameters=ready.net.count_params(),
        steps_per_epoch=ready.steps_per_epoch,
    )
    run = create(path, config, created)
    with locked(run):
        preprocess.save(fitted, run.path / "preprocess.npz")
        _announce(run, console)
        finish(
            Training(
                run,
                ready.net,
                ready.model,
                fitted,
                examples,
                data_dir,
                TrainingState(),
                interval,
                console,
                callbacks,
                probe,
            )
        )
    return run


def resume(
    path: Path,
    data_dir: Path | None,
    console: Console,
    *,
    interval: Interval = "auto",
    callbacks: Sequence[keras.callbacks.Callback] = (),
    probe: Probes | None = None,
) -> Run:
    """Goes on with a run that was stopped, from its last checkpoint, to the end that it would have had.

    Args:
        path: the run directory.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress.
        interval: as in `start`; it may be another than before.
        callbacks: called after those of every run; an error of theirs ends the training where it is.
        probe: what is measured on the way; None for nothing.

    Returns:
        The finished run.

    Raises:
        UserError: if there is nothing to go on with, a file is damaged, or data, backend or a version is another.
        StoppedError: as in `start`.
    """
    run = open_run(path)
    with locked(run):
        # The other process may have finished it between the two lines above.
        run = open_run(path)
        config = run.config
        _refuse_resuming(run)
        info = sources.describe(config.data, data_dir, config.validation, config.subset)
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
        state = checkpoint.load(path / CHECKPOINTS, model, checkpoint.origin(run)) or TrainingState()
        progress = state.progress
        # On another machine an execution may have had another number of steps.
        model.steps_per_execution = math.gcd(model.steps_per_execution, progress.step)
        examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
        for folder in (path, path / CHECKPOINTS):
            remove_leftovers(folder)
        fitted = _fitted(run, examples)
        table.truncate(path / "metrics.csv", progress.step // steps_per_epoch)
        cut(path / WATCHED, progress.step)
        record(run, progress)
        _announce(run, console)
        for damage in state.damaged:
            console.print(f"{damage}; the one before it is whole", highlight=False, soft_wrap=True)
        if progress.step:
            console.print(f"goes on after step {progress.step:,}", highlight=False)
        finish(Training(run, net, model, fitted, examples, data_dir, state, interval, console, callbacks, probe))
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
    now = environment.versions()
    indifferent = INDIFFERENT if run.record.backend == "jax" else {*INDIFFERENT, "jax"}
    for name, before in run.record.versions.items():
        if name not in indifferent and now.get(name) != before:
            raise UserError(
                f"{run.path} was started with {name} {before}, and this is {now.get(name, 'without it')}: it would not "
                f"end as it would have. Install {name}=={before}, or start a new run."
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

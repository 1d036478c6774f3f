"""Starts or resumes a training run and trains it to its end."""

import dataclasses
import datetime
import math
from pathlib import Path

import keras
from rich.console import Console

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.files import remove_leftovers, replacing
from pipelines.core.run import DataRecord, Record, Run, create, locked, open_run, refuse_existing
from pipelines.data import batches, preprocess, sources
from pipelines.data.own import prepare as own
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import checkpoint, fine_tuning, metrics_file
from pipelines.training.callbacks import CHECKPOINTS, STEPS_FILE, record
from pipelines.training.checkpoint import TrainingState
from pipelines.training.fitting import Options, Training, finish
from pipelines.training.net import build, compiled
from pipelines.training.precision import Policy
from pipelines.training.prepare import prepare
from pipelines.training.probe import PROBE_FILE, cut

__all__ = ["Options", "resume", "start"]

# Packages whose versions do not affect the remaining steps, because their results are stored in the run.
INDIFFERENT = {"python", "numpy", "tensorflow-datasets"}


def start(config: Config, path: Path, options: Options) -> Run:
    """Trains a new run to its end.

    Nothing is written before data, net and optimizer exist, so an invalid configuration leaves no folder behind.

    Args:
        config: the configuration.
        path: the run directory to create.
        options: options of this process.

    Returns:
        The finished run.

    Raises:
        UserError: the folder exists, the data cannot be loaded, the net cannot be built, or training diverged.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    refuse_existing(path)
    config = own.resolved(config, options.data_dir, options.console)
    ready = prepare(config, options.data_dir)
    examples = _training_examples(config, options.data_dir)
    fitted = batches.fit_preprocess(config, examples, ready.data.columns)
    created = Record(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=environment.command(),
        versions=environment.versions(),
        backend=keras.backend.backend(),
        code=environment.code(),
        machine=ready.machine,
        precision=ready.precision,
        devices=getattr(ready.model, "devices", 1),
        data=DataRecord(**dataclasses.asdict(ready.data)),
        parameters=sum(math.prod(variable.shape) for variable in ready.net.trainable_variables),
        steps_per_epoch=ready.steps_per_epoch,
    )
    run = create(path, config, created)
    with locked(run):
        preprocess.save(fitted, run.path / "preprocess.npz")
        if config.start_from:
            with replacing(run.path / fine_tuning.INITIAL) as aside:
                ready.net.save(aside)
        _announce(run, options.console)
        if config.start_from:
            new = f", with a new layer {ready.replaced}" if ready.replaced else ""
            say(options.console, f"starting from {config.start_from}{new}")
        finish(Training(run, ready.net, ready.model, fitted, examples, TrainingState(), options))
    return run


def resume(path: Path, options: Options) -> Run:
    """Resumes an interrupted run from its last checkpoint and trains it to its end.

    Args:
        path: the run directory.
        options: options of this process; its interval may differ from the one before.

    Returns:
        The finished run.

    Raises:
        UserError: there is nothing to resume, a file is damaged, or data, backend or a version differ.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    run = open_run(path)
    with locked(run):
        # Reopened, because another process may have finished it between the two lines above.
        run = open_run(path)
        config, console, steps_per_epoch = run.config, options.console, run.record.steps_per_epoch
        _refuse_resuming(run)
        info = sources.describe(config.data, options.data_dir, config.validation, config.subset)
        known = run.record.data
        if DataRecord(**dataclasses.asdict(info)) != known:
            raise UserError(
                f"{path} was trained on {known.name} {known.version} with {known.counts}, "
                f"and the data found is {info.name} {info.version} with {info.counts}. Point --data-dir at the former."
            )
        precision: Policy = run.record.precision.policy
        net = build(config, info, precision)
        accelerated = bool(environment.accelerators())
        model = compiled(
            net,
            config,
            precision,
            steps_per_epoch,
            accelerated,
            task=info.task,
            # Earlier versions did not record the number: it was that of the cores at every depth.
            devices=run.record.devices or environment.cores(),
        )
        state = checkpoint.load(path / CHECKPOINTS, model, checkpoint.origin(run))
        if state is None:
            state = TrainingState()
            if config.start_from:
                saved = path / fine_tuning.INITIAL
                # A run that was killed while it was created has not saved its net yet.
                fine_tuning.assign(net, saved if saved.exists() else Path(config.start_from))
        step = state.progress.step
        # The run may come from another machine with another number of steps per execution.
        model.steps_per_execution = math.gcd(model.steps_per_execution, step)
        examples = _training_examples(config, options.data_dir)
        for folder in (path, path / CHECKPOINTS):
            remove_leftovers(folder)
        fitted = _fitted(run, examples)
        metrics_file.truncate(path / "metrics.csv", step // steps_per_epoch)
        for rows in (PROBE_FILE, STEPS_FILE):
            cut(path / rows, step)
        record(run, state.progress)
        _announce(run, console)
        if (now := getattr(model, "devices", 1)) < (run.record.devices or 1):
            say(
                console,
                f"each batch was divided among {run.record.devices} devices and is now on {now}: results are no longer "
                f"bit-identical. Unset JAX_NUM_CPU_DEVICES to avoid this.",
            )
        for damage in state.damaged:
            say(console, f"{damage}; the previous one is intact")
        if step:
            say(console, f"resuming after step {step:,}")
        finish(Training(run, net, model, fitted, examples, state, options))
    return run


def _training_examples(config: Config, data_dir: Path | None) -> Examples | Stream:
    return sources.load(config.data, "train", data_dir, config.validation, config.subset)


def _refuse_resuming(run: Run) -> None:
    if run.record.state == "finished":
        raise UserError(
            f"{run.path} is finished: all {run.config.epochs} epochs are done. Evaluate it with "
            f"`highway evaluate {run.path}`; for more epochs start a new run with --epochs."
        )
    if run.record.state == "diverged":
        raise UserError(
            f"{run.path} diverged, and would do so again. Start a new run with a lower --optimizer.learning-rate, "
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
                f"{run.path} was started with {name} {before}, and this is {now.get(name, 'without it')}: the result "
                f"would no longer be bit-identical. Install {name}=={before}, or start a new run."
            )


def _fitted(run: Run, examples: Examples | Stream) -> Fitted:
    path = run.path / "preprocess.npz"
    if not path.exists():
        # The run was killed between the creation of its folder and this file.
        preprocess.save(batches.fit_preprocess(run.config, examples, run.record.data.columns), path)
    return preprocess.load(path)


def _announce(run: Run, console: Console) -> None:
    record, data, epochs = run.record, run.record.data, run.config.epochs
    rest = data.counts["train"] % run.config.batch_size
    further = f"; {rest} more examples start the next epoch" if rest and epochs > 1 else ""
    say(
        console,
        f"{run.config.recipe}: {record.parameters:,} parameters, {data.counts['train']:,} training examples of "
        f"{data.name}, {epochs} {'epoch' if epochs == 1 else 'epochs'} of {record.steps_per_epoch:,} steps{further}\n"
        f"precision {record.precision.policy} ({record.precision.reason}), run directory {run.path}",
    )
    if run.config.validation not in (0, data.counts["validation"]):
        say(console, f"note: --validation is ignored, because {data.name} has a validation split")

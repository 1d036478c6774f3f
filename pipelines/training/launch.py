"""Starts or resumes a training run and trains it to its end."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import keras
from pydantic import ValidationError
from rich.console import Console

from pipelines.core import environment
from pipelines.core.config import Augment, Config
from pipelines.core.console import counted, say
from pipelines.core.errors import UserError
from pipelines.core.files import remove_leftovers, replacing
from pipelines.core.frozen import Frozen
from pipelines.core.optimizers import StepSchedule, TrapezoidSchedule
from pipelines.core.ownership import claim
from pipelines.core.run import INITIAL, DataRecord, Record, Run, Start, create, locked, open_run, refuse_existing
from pipelines.core.url import location
from pipelines.data import batches, preprocess, sources
from pipelines.data.own import prepare as own
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import checkpoint, devices, fine_tuning, memory, metrics_file
from pipelines.training.assembly import assemble
from pipelines.training.callbacks import STEPS_FILE, is_over
from pipelines.training.checkpoint import TrainingState
from pipelines.training.checkpoint_file import CHECKPOINTS
from pipelines.training.fitting import Options, Training, finish
from pipelines.training.probe import PROBE_FILE, cut
from pipelines.training.rebuild import (
    rebuilt,
    refuse_resuming,
    refuse_unequal_process,
    say_other_devices,
)
from pipelines.training.save_run import record
from pipelines.training.whitening import whiten

__all__ = ["Options", "follow", "resume", "start"]


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
    ready = assemble(config, options.data_dir, options.devices)
    examples = _training_examples(config, options.data_dir)
    fitted = batches.fit_preprocess(config, examples, ready.data.columns)
    if config.model.whitened:
        whiten(ready.net, examples, fitted)
    created = Record(
        created=environment.now(),
        command=environment.command(),
        versions=environment.versions(),
        backend=keras.backend.backend(),
        code=environment.code(),
        machine=ready.machine,
        precision=ready.precision,
        devices=devices.used(ready.model),
        starts=_starts((), 0, ready.model, options),
        data=DataRecord(**dataclasses.asdict(ready.data)),
        parameters=memory.trained_weights(ready.net),
        steps_per_epoch=ready.steps_per_epoch,
    )
    state = TrainingState()
    _share(config, created, ready.model, state, options)
    claim(path)
    run = create(path, config, created)
    with locked(run):
        preprocess.save(fitted, run.path / "preprocess.npz")
        if config.start_from:
            with replacing(run.path / INITIAL) as aside:
                ready.net.save(aside)
        _announce(run, options.console)
        if config.start_from:
            last = f"with a new layer {ready.replaced}" if ready.replaced else "including its last layer"
            say(options.console, f"starting from {config.start_from}, {last}")
        finish(Training(run, ready.net, ready.model, fitted, examples, state, options))
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
        refuse_resuming(run)
        net, model = rebuilt(run, options)
        examples = _training_examples(config, options.data_dir)
        claim(path)
        # Its owner so far may have finished it meanwhile.
        run = open_run(path)
        refuse_resuming(run)
        loaded = checkpoint.load(path / CHECKPOINTS, model, checkpoint.origin(run))
        state = loaded or TrainingState()
        if loaded is None and config.start_from:
            saved = path / INITIAL
            # A run that was killed while it was created has not saved its net yet.
            fine_tuning.assign(net, saved if saved.exists() else location(config.start_from))
        step = state.progress.step
        # The run may come from another machine with another number of steps per execution.
        model.steps_per_execution = math.gcd(model.steps_per_execution, step)
        for folder in (path, path / CHECKPOINTS):
            remove_leftovers(folder)
        fitted = _fitted(run, examples)
        if loaded is None and config.model.whitened:
            whiten(net, examples, fitted)
        metrics_file.truncate(path / "metrics.csv", step // steps_per_epoch)
        for rows in (PROBE_FILE, STEPS_FILE):
            cut(path / rows, step)
        record(run, state.progress)
        _announce(run, console)
        if not is_over(run, state.progress):
            say_other_devices(run, model, options)
            if starts := _starts(run.record.starts, step, model, options):
                run.update(starts=starts, devices=starts[-1].devices)
        for damage in state.damaged:
            say(console, f"{damage}; the previous one is intact")
        if step:
            say(console, f"resuming after step {step:,}")
        _share(config, run.record, model, state, options)
        finish(Training(run, net, model, fitted, examples, state, options))
    return run


def follow(config: Config | None, path: Path, options: Options) -> Run:
    """Trains a run to its end along with the process that leads it, without writing anything.

    Args:
        config: the configuration that this process was started with; None accepts any.
        path: the run directory, which this process need not have.
        options: options of this process, with an exchange.

    Returns:
        The finished run.

    Raises:
        UserError: configuration, data or a version differ from those of the process that leads, or training diverged.
        StoppedError: after SIGTERM or SIGINT in any of the processes.
    """
    assert options.exchange, "without an exchange, nobody leads"
    # Before it waits: data at a URL are downloaded by all processes at the same time.
    here = config and own.resolved(config, options.data_dir, options.console)
    led = _led(options.exchange.share())
    run = Run(path, led.config, led.record, writes=False)
    refuse_unequal_process(here, run)
    net, model = rebuilt(run, options)
    state = checkpoint.from_bytes(options.exchange.share(), model)
    model.steps_per_execution = math.gcd(model.steps_per_execution, state.progress.step)
    examples = _training_examples(run.config, options.data_dir)
    fitted = batches.fit_preprocess(run.config, examples, run.record.data.columns)
    finish(Training(run, net, model, fitted, examples, state, options))
    return run


class _Led(Frozen):
    """Run as the process that leads it passes it to the others."""

    config: Config
    record: Record
    """Its record, with the versions of this process, not those at the start of the run."""


def _led(message: bytes) -> _Led:
    try:
        return _Led.model_validate_json(message)
    except ValidationError as error:
        raise UserError(
            "process 0 has sent a record of its run that this process cannot read, so it has another version of "
            "highway-keras. Install the same version for all processes."
        ) from error


def _share(config: Config, known: Record, model: keras.Model, state: TrainingState, options: Options) -> None:
    """Passes run and state to the other processes, whose start is then bit-identical; see `follow`.

    The second message is sent once they have compared the first one with their own configuration and data.
    """
    if options.exchange:
        led = _Led(config=config, record=known.model_copy(update={"versions": environment.versions()}))
        options.exchange.share(led.model_dump_json().encode())
        options.exchange.share(checkpoint.to_bytes(model, state))


def _starts(before: tuple[Start, ...], step: int, model: keras.Model, options: Options) -> tuple[Start, ...]:
    """Returns the starts to record: none for runs that were always left to choose their devices."""
    if not (before or options.devices or options.exchange):
        return ()
    return *before, Start(step=step, devices=devices.used(model), processes=devices.processes())


def _training_examples(config: Config, data_dir: Path | None) -> Examples | Stream:
    return sources.load(config.data, "train", data_dir, config.validation, config.subset)


def _fitted(run: Run, examples: Examples | Stream) -> Fitted:
    path = run.path / "preprocess.npz"
    if not path.exists():
        # The run was killed between the creation of its folder and this file.
        preprocess.save(batches.fit_preprocess(run.config, examples, run.record.data.columns), path)
    return preprocess.load(path)


def _announce(run: Run, console: Console) -> None:
    record, data, epochs = run.record, run.record.data, run.config.epochs
    rest = data.counts["train"] % run.config.batch_size
    start = "example starts" if rest == 1 else "examples start"
    further = f"; {rest} more {start} the next epoch" if rest and epochs > 1 else ""
    say(
        console,
        f"{run.config.recipe}: {record.parameters:,} parameters, {data.counts['train']:,} training examples of "
        f"{data.name}, {counted(epochs, 'epoch')} of {counted(record.steps_per_epoch, 'step')}{further}\n"
        f"precision {record.precision.policy} ({record.precision.reason}), run directory {run.path}",
    )
    if small := run.config.small_epochs:
        size = " x ".join(map(str, run.config.small_size(*data.shape[:2])))
        say(console, f"images of {size} pixels in the first {counted(small, 'epoch')}, then of full size")
    if run.config.validation not in (0, held_out := data.counts["validation"]):
        asked = f"not the {run.config.validation:,} of --validation"
        say(console, f"note: the validation split of {data.name} has {counted(held_out, 'example')}, {asked}")
    for note in _without_effect(run.config, epochs * record.steps_per_epoch):
        say(console, f"note: {note}")
    if gpus := environment.unused_gpus():
        say(console, f"note: {environment.VISIBLE} is {gpus}, but {record.backend} finds no GPU: this run uses the CPU")


def _without_effect(config: Config, steps: int) -> Iterator[str]:
    """Yields a note for each setting that has little or no effect on a run of this length."""
    augment, process, schedule, ema = config.augment, config.preprocess, config.schedule, config.optimizer.ema
    if config.small_side and not config.small_epochs:
        of = f"{config.small_share:g} of {counted(config.epochs, 'epoch')}"
        yield f"--small-side has no effect: --small-share {of} is less than one"
    if config.small_share != Config.model_fields["small_share"].default and not config.small_side:
        yield "--small-share has no effect without --small-side"
    if augment.magnitude != Augment().magnitude and not augment.rand_augment:
        yield "--augment.magnitude has no effect without RandAugment: add --augment.rand-augment 2"
    if process.offset and (process.contrast or process.mean != "none"):
        other = "contrast" if process.contrast else "mean"
        yield f"--preprocess.offset has no effect, because --preprocess.{other} cancels it"
    if steps == 1 and isinstance(schedule, TrapezoidSchedule) and schedule.warmup:
        yield "the learning rate rises from 0, so the only step of this run changes no weights"
    # Steps count from 0.
    if isinstance(schedule, StepSchedule) and (late := [f"{one:,}" for one in schedule.boundaries if one >= steps]):
        yield f"the run ends after {steps:,} steps: --schedule.boundaries has no effect at {', '.join(late)}"
    # The average starts with the weights after the first step.
    if ema is not None and (share := ema ** (steps - 1)) > 0.5:
        yield (
            f"with --optimizer.ema {ema:g}, {share:.0%} of the average of the weights is still those after the first "
            f"of {steps:,} steps: choose a smaller one for so short a run"
        )

"""Checks that this process can resume a run, and rebuilds the run's net."""

import dataclasses

import keras

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.console import counted, next_command, say
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.core.run import DataRecord, Run
from pipelines.data import sources
from pipelines.data.own import prepare as own
from pipelines.training import devices
from pipelines.training.fitting import Options
from pipelines.training.net import build, compiled
from pipelines.training.precision import Policy

# Packages whose versions do not affect the remaining steps, because their results are stored in the run.
INDIFFERENT = {"python", "numpy", "tensorflow-datasets"}


def refuse_resuming(run: Run) -> None:
    """Refuses a run that has ended, or that other code has begun.

    Raises:
        UserError: the run is finished or diverged, or backend or a version differ.
    """
    if run.record.state == "finished":
        raise UserError(
            f"{run.path} is finished: all {run.config.epochs} epochs are done. Evaluate it with "
            f"`{next_command('evaluate', run.path)}`; for more epochs start a new run with --epochs."
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
    refuse_other_versions(run)


def refuse_other_versions(run: Run) -> None:
    """Raises a `UserError` if a package has another version than at the start of a run."""
    now = environment.versions()
    indifferent = INDIFFERENT if run.record.backend == "jax" else {*INDIFFERENT, "jax"}
    for name, before in run.record.versions.items():
        build = environment.build_here(name, now)
        here = now.get(build)
        if name not in indifferent and here != before:
            raise UserError(
                f"{run.path} was started with {name} {before}, and this is {here or 'without it'}: the result "
                f"would no longer be bit-identical. Install {build}=={before}, or start a new run."
            )


def refuse_other_configuration(here: Config, led: Config) -> None:
    """Raises a `UserError` if a process has another configuration than the one that leads its run.

    Args:
        here: the configuration of this process.
        led: configuration of the run.
    """
    mine = flat(here)
    for name, value in flat(led).items():
        if mine.get(name) != value:
            raise UserError(
                f"this process was started with {name} {mine.get(name)}, and the one that leads the run with {value}. "
                "Start all processes with the same command."
            )


def rebuilt(run: Run, options: Options) -> tuple[keras.Model, keras.Model]:
    """Builds the net of a run, with initial weights.

    Args:
        run: the run.
        options: folder of data, and devices.

    Returns:
        The net, and a compiled model with the same weights.

    Raises:
        UserError: the data are missing or others, or the devices do not exist or cannot divide its batches.
    """
    config, known, recorded = run.config, run.record.data, run.record.devices
    own.restore(config, options.console)
    info = sources.describe(config.data, options.data_dir, config.validation, config.subset)
    found = DataRecord(**dataclasses.asdict(info))
    if differing := [name for name in DataRecord.model_fields if getattr(found, name) != getattr(known, name)]:
        # The message shows these three.
        others = "" if {*differing} & {"name", "version", "counts"} else f" and another {differing[0]}"
        raise UserError(
            f"{run.path} was trained on {known.name} {known.version} with {known.counts}, but the data found is "
            f"{info.name} {info.version} with {info.counts}{others}. Point --data-dir at the former."
        )
    devices.check(config, options.devices)
    precision: Policy = run.record.precision.policy
    accelerated = bool(environment.accelerators())
    wanted = options.devices or (recorded if devices.processes() == 1 else None)
    with devices.scope(devices.fitting(config.batch_size, wanted or 1)):
        net = build(config, info, precision)
        if wanted is None and devices.processes() == 1:
            wanted = devices.unrecorded(net, config, accelerated)
        steps = run.record.steps_per_epoch
        model = compiled(net, config, precision, steps, accelerated, task=info.task, devices=wanted)
    return net, model


def say_other_devices(run: Run, model: keras.Model, options: Options) -> None:
    """Prints how the devices and processes of a resumed run differ from those before.

    Args:
        run: the run, with the record of its last start.
        model: the compiled model.
        options: options of this process.
    """
    before, now = run.record.devices, devices.used(model)
    processes = run.record.starts[-1].processes if run.record.starts else 1, devices.processes()
    if before is None or (before == now and processes[0] == processes[1]):
        return
    of = [f" of {count} processes" if count > 1 else "" for count in processes]
    chosen = options.devices or options.exchange or run.record.starts
    advice = "" if chosen else " Unset JAX_NUM_CPU_DEVICES to avoid this."
    say(
        options.console,
        f"each batch was divided among {counted(before, 'device')}{of[0]} and is now on {now}{of[1]}: results are no "
        f"longer bit-identical.{advice}",
    )

"""Checks that this process can resume a run, or train it along with process 0, and rebuilds the run's net."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

import keras

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.console import counted, next_command, say
from pipelines.core.errors import UserError
from pipelines.core.frozen import flat
from pipelines.core.run import DataRecord, Run
from pipelines.core.url import is_url
from pipelines.data import sources
from pipelines.data.own import prepare as own
from pipelines.training import devices
from pipelines.training.fitting import Options
from pipelines.training.net import build, compiled
from pipelines.training.precision import Policy

# Packages of which a run may be resumed, or trained by several processes, with another version. Python's changes
# nothing: weights and seeds are stored or come from process 0. But NumPy fits the preprocessing and chooses the
# examples that are held out, TFDS decides their order, and Pillow decodes the user's own images.
INDIFFERENT = {"python"}


def refuse_resuming(run: Run) -> None:
    """Refuses a run that has ended, or that other code has begun.

    Raises:
        UserError: the run is pruned, finished or diverged, or backend or a version differ.
    """
    if run.record.pruned:
        # Its configuration is that of the whole net, which training would put in its place.
        raise UserError(
            f"{run.path} is finished: it has the pruned net of another run, which is trained no further. Evaluate it "
            f"with `{next_command('evaluate', run.path)}`, or start a new run from its weights with --from."
        )
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
    """Raises a `UserError` if a package on which its results depend has another version than at the start of a run."""
    indifferent = {*INDIFFERENT}
    if run.record.backend != "jax":
        indifferent.add("jax")
    if not is_url(run.config.data):
        # Its data are prepared already. From a URL, they are decoded on every machine that lacks them.
        indifferent.add("pillow")
    if other := _other_version(run.record.versions, indifferent):
        raise UserError(
            f"{run.path} was started with {other.name} {other.wanted}, and this is {other.here or 'without it'}: the "
            f"result would no longer be bit-identical. Install {other.build}=={other.wanted}, or start a new run."
        )


def refuse_unequal_process(config: Config | None, run: Run) -> None:
    """Refuses to train along with process 0 in other circumstances.

    Args:
        config: the configuration that this process was started with; None accepts any.
        run: the run, with the versions of process 0 at present.

    Raises:
        UserError: configuration or a version differ.
    """
    mine = flat(config or run.config)
    for name, value in flat(run.config).items():
        if mine.get(name) != value:
            raise UserError(
                f"this process was started with {name} {mine.get(name)}, and process 0 with {value}. Start all "
                "processes with the same command."
            )
    if other := _other_version(run.record.versions, INDIFFERENT):
        raise UserError(
            f"this process has {f'{other.name} {other.here}' if other.here else f'no {other.name}'}, and process 0 has "
            f"{other.wanted}: they would compute different numbers. Install {other.build}=={other.wanted} here, or the "
            "same version for all processes."
        )


class _OtherVersion(NamedTuple):
    """A package whose version differs."""

    name: str
    wanted: str
    here: str | None
    """Version of this process; None if the package is missing."""
    build: str
    """Name under which it is, or should be, installed here."""


def _other_version(wanted: Mapping[str, str], indifferent: Collection[str]) -> _OtherVersion | None:
    """Returns the first package whose version here is not the wanted one."""
    now = environment.versions()
    for name, version in wanted.items():
        build = environment.build_here(name, now)
        if name not in indifferent and now.get(build) != version:
            return _OtherVersion(name, version, now.get(build), build)
    return None


def rebuilt(run: Run, options: Options) -> tuple[keras.Model, keras.Model]:
    """Builds the net of a run, with initial weights.

    Args:
        run: the run; if this process does not write it, messages are about process 0, which does.
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
        there = f"{known.name} {known.version} with {known.counts}"
        here = f"{info.name} {info.version} with {info.counts}"
        if not run.writes:
            raise UserError(
                f"process 0 trains on {there}, but this process finds {here}{others}. Point its --data-dir at the "
                "former."
            )
        raise UserError(
            f"{run.path} was trained on {there}, but the data found is {here}{others}. Point --data-dir at the former."
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

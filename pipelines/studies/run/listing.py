"""`highway reproduce --list`: the studies, and how long each takes on this machine."""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipelines import studies
from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.durations import clock, remaining
from pipelines.core.errors import UserError
from pipelines.studies.framework.study import Study
from pipelines.studies.run import step_timing
from pipelines.studies.run.step_timing import TimingTask
from pipelines.training.processes.supervisor import Member, Supervisor

INTERVAL = 0.1
"""Seconds between two checks on the measuring process."""


def show(data_dir: Path | None, console: Console, *, measure: bool) -> None:
    """Prints the studies with their runs, epochs and hours.

    Args:
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print the table and progress.
        measure: whether to time the nets first that have no cached timing.
    """
    listed: dict[str, Study] = {}
    for name in studies.names():
        listed[name] = study = studies.get(name)
        if study.short:
            listed[f"{name} --schedule short"] = study.short
    refused = _measure_all(listed, data_dir, console) if measure else {}
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in ("study", "asks", "runs", "epochs", "hours"):
        table.add_column(column, justify="left" if column in ("study", "asks") else "right", overflow="fold")
    for name, study in listed.items():
        epochs = study.seeds * sum(arm.config.epochs for arm in study.arms.values())
        runs = f"{study.seeds * len(study.arms)}"
        table.add_row(name, study.asks, runs, f"{epochs:,}", _hours(_seconds(study)))
    console.print(table)
    for data, error in refused.items():
        say(console, f"hours of {', '.join(_waiting(listed, data))} are unknown: {error}")
    model, features = environment.cpu()
    machine = f"{environment.cores()} cores of {model} ({' '.join(features) or 'no features known'})"
    if not measure and any(_seconds(study) is None for study in listed.values()):
        say(console, "unknown: the steps of these nets have not been measured here; add --measure, which takes minutes")
    say(console, f"hours: all runs in full, one after the other, estimated from measured steps; {machine}")
    say(console, "highway reproduce NAME runs one; --budget 0.01 is a hundredth of it, --workers N runs some at once.")


def _measure_all(listed: dict[str, Study], data_dir: Path | None, console: Console) -> dict[str, UserError]:
    """Times each net without a cached timing; returns the missing data sets, each with its error."""
    nets = [(name, arm, kind.config) for name, study in listed.items() for arm, kind in study.arms.items()]
    # Arms that differ only in irrelevant fields share a file and are timed once.
    missing = {step_timing.file(net[-1]): net for net in nets if step_timing.cached(net[-1]) is None}
    refused: dict[str, UserError] = {}
    began = time.monotonic()
    for done, (name, arm, config) in enumerate(missing.values()):
        if config.data in refused:
            continue
        seconds = remaining(time.monotonic() - began, done, len(missing))
        left = "" if seconds is None else f", about {clock(seconds)} left"
        say(console, f"measures the steps of {arm} of {name} ({done + 1} of {len(missing)}{left})")
        try:
            _measure(arm, config, data_dir, console)
        except UserError as error:
            refused[config.data] = error
    return refused


def _waiting(listed: dict[str, Study], data: str) -> list[str]:
    """The studies whose hours are unknown because a data set is missing."""
    on_data = {
        name: study for name, study in listed.items() if any(arm.config.data == data for arm in study.arms.values())
    }
    return [name for name, study in on_data.items() if _seconds(study) is None]


def _seconds(study: Study) -> float | None:
    """Estimated seconds of a study; None if one of its nets could not be timed."""
    timings = {name: step_timing.cached(arm.config) for name, arm in study.arms.items()}
    known = {name: timing for name, timing in timings.items() if timing}
    return step_timing.of_study(known, study.arms, study.seeds) if len(known) == len(timings) else None


def _measure(name: str, config: Config, data_dir: Path | None, console: Console) -> None:
    path = step_timing.file(config)
    task = TimingTask(folder=path, data_dir=data_dir, config=config, began=time.time())
    with Supervisor([Member(name, task, {}, path.with_suffix(".log"))], lambda line: say(console, line)) as supervisor:
        while supervisor.works():
            time.sleep(INTERVAL)
    if step_timing.cached(config) is None:
        raise UserError(f"the timing in {path} cannot be read. Remove the file and repeat the command.")


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    hours = seconds / 3600
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"

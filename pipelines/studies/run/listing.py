"""`highway reproduce --list`: the studies, and what each takes on this machine."""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipelines import studies
from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.durations import clock
from pipelines.core.errors import UserError
from pipelines.studies.framework.study import Study
from pipelines.studies.run import cost
from pipelines.studies.run.measure import MeasureTask
from pipelines.training.processes.pool import say
from pipelines.training.processes.supervisor import Member, Supervisor

LOOK = 0.1
"""Seconds between two looks at the process that measures."""


def show(data_dir: Path | None, console: Console) -> None:
    """Prints the studies with their runs, epochs and hours; nets that were never measured here are measured first.

    Args:
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for the table, and for what is measured.
    """
    listed: dict[str, Study] = {}
    for name in studies.names():
        listed[name] = study = studies.get(name)
        if study.short:
            listed[f"{name} --schedule short"] = study.short
    refused = _measure_all(listed, data_dir, console)
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
    say(console, f"hours: of all runs in full, one after the other, from measured steps; {machine}")
    say(console, "highway reproduce NAME runs one; --budget 0.01 is a hundredth of it, --workers N runs some at once.")


def _measure_all(listed: dict[str, Study], data_dir: Path | None, console: Console) -> dict[str, UserError]:
    """Measures each net that was never measured here; returns the data that could not be had, and why."""
    nets = [(name, arm, kind.config) for name, study in listed.items() for arm, kind in study.arms.items()]
    # Arms that differ in what takes no time are one net.
    missing = {cost.file(config): (name, arm, config) for name, arm, config in nets if cost.kept(config) is None}
    refused: dict[str, UserError] = {}
    began = time.monotonic()
    for done, (name, arm, config) in enumerate(missing.values()):
        if config.data in refused:
            continue
        left = f", about {clock((time.monotonic() - began) / done * (len(missing) - done))} left" if done else ""
        say(console, f"measures the steps of {arm} of {name} ({done + 1} of {len(missing)}{left})")
        try:
            _measure(arm, config, data_dir, console)
        except UserError as error:
            refused[config.data] = error
    return refused


def _waiting(listed: dict[str, Study], data: str) -> list[str]:
    """The studies whose hours are unknown for want of some data."""
    on_data = {
        name: study for name, study in listed.items() if any(arm.config.data == data for arm in study.arms.values())
    }
    return [name for name, study in on_data.items() if _seconds(study) is None]


def _seconds(study: Study) -> float | None:
    """What a study takes; None if a net of it could not be measured."""
    costs = {name: cost.kept(arm.config) for name, arm in study.arms.items()}
    known = {name: each for name, each in costs.items() if each}
    return cost.of_study(known, study.arms, study.seeds) if len(known) == len(costs) else None


def _measure(name: str, config: Config, data_dir: Path | None, console: Console) -> None:
    path = cost.file(config)
    task = MeasureTask(folder=path, data_dir=data_dir, config=config, began=time.time())
    with Supervisor([Member(name, task, {}, path.with_suffix(".log"))], lambda line: say(console, line)) as supervisor:
        while supervisor.works():
            time.sleep(LOOK)
    if cost.kept(config) is None:
        raise UserError(f"the measurement in {path} cannot be read. Remove the file and repeat.")


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    hours = seconds / 3600
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"

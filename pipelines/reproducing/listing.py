"""`highway reproduce --list`: the studies, and what each takes on this machine."""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipelines import environment, studies
from pipelines.config import Config
from pipelines.errors import UserError
from pipelines.processes.crew import Crew, Member
from pipelines.processes.together import say
from pipelines.reproducing import cost
from pipelines.reproducing.cost import Cost
from pipelines.reproducing.measure import MeasureTask
from pipelines.studies.study import Study

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
    told: dict[str, str] = {}
    for name, study in listed.items():
        try:
            told[name] = _hours(cost.of_study(_costs(study, data_dir, console), study.arms, study.seeds))
        except UserError as error:
            say(console, f"{name} is not measured: {error}")
            told[name] = "unknown"
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in ("study", "asks", "runs", "epochs", "hours"):
        table.add_column(column, justify="left" if column in ("study", "asks") else "right", overflow="fold")
    for name, study in listed.items():
        epochs = study.seeds * sum(arm.config.epochs for arm in study.arms.values())
        runs = f"{study.seeds * len(study.arms)}"
        table.add_row(name, study.asks, runs, f"{epochs:,}".replace(",", " "), told[name])
    console.print(table)
    model, features = environment.cpu()
    machine = f"{environment.cores()} cores of {model} ({' '.join(features) or 'no features known'})"
    say(console, f"hours: of all runs in full, one after the other, from measured steps; {machine}")
    say(console, "highway reproduce NAME runs one; --budget 0.01 is a hundredth of it, --workers N runs some at once.")


def _costs(study: Study, data_dir: Path | None, console: Console) -> dict[str, Cost]:
    configs = _configs(study)
    # Arms that differ in what takes no time are one net.
    missing = {cost.file(config): name for name, config in configs.items() if cost.kept(config) is None}
    for number, name in enumerate(missing.values(), 1):
        say(console, f"measures the steps of {name} of {study.name} ({number} of {len(missing)})")
        _measure(name, configs[name], data_dir, console)
    return {name: known for name, config in configs.items() if (known := cost.kept(config))}


def _measure(name: str, config: Config, data_dir: Path | None, console: Console) -> None:
    path = cost.file(config)
    task = MeasureTask(folder=path, data_dir=data_dir, config=config, began=time.time())
    with Crew([Member(name, task, {}, path.with_suffix(".log"))], lambda line: say(console, line)) as crew:
        while crew.works():
            time.sleep(LOOK)
    if cost.kept(config) is None:
        raise UserError(f"the measurement in {path} cannot be read. Remove the file and repeat.")


def _configs(study: Study) -> dict[str, Config]:
    return {name: arm.config for name, arm in study.arms.items()}


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}".replace(",", " ")

"""Runs a study, and makes a page with its tables and figures next to the source's own numbers."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pipelines import studies
from pipelines.core import environment
from pipelines.core.durations import clock
from pipelines.core.errors import UserError, unknown
from pipelines.core.run import Run
from pipelines.studies.framework.study import Study
from pipelines.studies.run import plan as plans
from pipelines.studies.run import reuse, searching
from pipelines.studies.run.budget import Work, scheduled
from pipelines.studies.run.plan import Schedule, StudyPlan, run_folder
from pipelines.studies.run.task import StudyTask
from pipelines.training.evaluation import of_run
from pipelines.training.processes.pool import say, train_all
from pipelines.training.processes.supervisor import Member


def reproduce(
    name: str,
    to: Path | None = None,
    *,
    seeds: int | None = None,
    budget: float = 1.0,
    schedule: Schedule | None = None,
    arms: Sequence[str] = (),
    workers: int = 1,
    data_dir: Path | None = None,
    console: Console | None = None,
) -> Path:
    """Runs a study, or goes on with it, and makes its page.

    Args:
        name: of the study.
        to: its folder; None for studies/NAME.
        seeds: runs of each arm; None for the study's.
        budget: share of the work.
        schedule: "full" or "short"; None is short where there is no GPU or TPU, if the study has a short one.
        arms: run these alone; none is all.
        workers: runs at the same time.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress and the summary; None for one of standard output.

    Returns:
        The page.

    Raises:
        UserError: an unknown study, arm or schedule, its folder holds another one or is used by another process,
            the data cannot be had, or a run dies again and again.

    Example:
        reproduce("depth-contrast", budget=0.01)
    """
    console = console or Console()
    study, schedule = chosen(name, schedule, console)
    if study.search and seeds:
        raise UserError(f"{study.name} draws settings in place of seeds. Leave --seeds out; --budget draws fewer.")
    folder = to or Path("studies") / study.name
    each = "settings of each net" if study.search else "seeds"
    work = scheduled(
        study.arms,
        seeds or study.seeds,
        budget,
        label=study.label,
        defined=study.seeds,
        each=each,
        tested=not study.search,
    )
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    asked = _asked(study, arms)
    planned = dict(work.arms)
    plans.keep(StudyPlan(study=study.name, schedule=schedule, budget=budget, backend=backend, arms=planned), folder)
    work = replace(work, arms={arm: planned[arm] for arm in asked})
    with plans.locked(folder):
        plans.clean(folder)
        try:
            if study.search:
                searching.search(study, work, folder, data_dir=data_dir, workers=workers, console=console)
            else:
                _train(name, work, folder, backend, data_dir=data_dir, workers=workers, console=console)
        except UserError:
            if not plans.begun(folder):
                plans.forget(folder)
            raise
        return _page(study, work, folder, console)


def chosen(name: str, asked: Schedule | None, console: Console) -> tuple[Study, Schedule]:
    """The study of that name, in full or short.

    Args:
        name: of the study.
        asked: the schedule; None takes the short one, if the study has one, where there is no GPU or TPU.
        console: is told of a short one that was not asked for.

    Returns:
        What is run, and which schedule that is.

    Raises:
        UserError: there is no such study, or it has no short schedule.
    """
    study = studies.get(name)
    if study.short is None:
        if asked == "short":
            raise UserError(f"{name} has no short schedule. Leave --schedule out; --budget 0.1 is a tenth of the work.")
        return study, "full"
    if asked is None and not environment.devices():
        say(console, f"there is no GPU or TPU: the short schedule of {name}; the full one with --schedule full")
        asked = "short"
    return (study.short, "short") if asked == "short" else (study, "full")


def _asked(study: Study, names: Sequence[str]) -> list[str]:
    if names and study.search:
        raise UserError(f"{study.name} is one search over all its nets. Leave --arms out; --budget draws fewer.")
    for name in names:
        if name not in study.arms:
            raise unknown(f"arm of {study.name}", name, study.arms)
    return [name for name in study.arms if name in names or not names]


def _train(
    study_name: str, work: Work, folder: Path, backend: str, *, data_dir: Path | None, workers: int, console: Console
) -> None:
    study = studies.get(study_name)
    members: list[Member] = []
    # Seed by seed, so that a study that is stopped has something of every arm, and the time left is told well.
    for seed in range(work.seeds):
        for name, config in work.arms.items():
            path = run_folder(folder, name, seed)
            one = config.seeded(seed, study.draws)
            # What was not probed while it trained cannot be probed now.
            if not path.exists() and not study.probe and (other := reuse.find(one, study.weights, backend, folder)):
                reuse.take(other, path)
                say(console, f"{path.name}: trained already, as {other}")
            task = StudyTask(folder=path, data_dir=data_dir, config=one, study=study.name, weights=study.weights)
            if not task.done:
                members.append(Member(path.name, task, {}, folder / "logs" / f"{path.name}.log"))
    runs = work.seeds * len(work.arms)
    label = f" ({work.label})" if work.label else ""
    done = f", {runs - len(members)} of them done" if len(members) < runs else ""
    say(console, f"{study_name} in {folder}: {runs} runs{done}{label}")
    train_all(members, workers=workers, console=console, label=study_name, result=_told)


def _page(study: Study, work: Work, folder: Path, console: Console) -> Path:
    from pipelines.studies.framework import results, trials
    from pipelines.studies.run import page

    arms = [(arm, seed, run_folder(folder, arm, seed)) for arm in work.arms for seed in range(work.seeds)]
    found = trials.read(plans.search_folder(folder)) if study.search else results.read(arms)
    page.write(folder, study, found, work.label)
    say(console, f"tables and figures {folder / 'README.md'}, every run {folder / 'results.csv'}")
    return folder / "README.md"


def _told(run: Run) -> str:
    measured = of_run(run)
    found = "diverged" if measured is None else measured.summary
    return f"{found}, {clock(run.record.seconds)} of training"

"""Runs a study and writes a page with its tables and figures next to the source's own numbers."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pipelines import studies
from pipelines.core import environment
from pipelines.core.console import say
from pipelines.core.errors import UserError, unknown
from pipelines.core.files import removing_new
from pipelines.core.ownership import claim
from pipelines.studies.framework.study import Study
from pipelines.studies.run import study_plan
from pipelines.studies.run.budget import Scope, reduced
from pipelines.studies.run.study_plan import STUDY_FILE, Schedule, StudyPlan, search_folder
from pipelines.studies.run.training import Machines, refuse_others, search_settings, task_of, train_runs


def reproduce(
    name: str,
    to: Path | None = None,
    *,
    seeds: int | None = None,
    budget: float = 1.0,
    schedule: Schedule | None = None,
    arms: Sequence[str] = (),
    machines: Machines = Machines(),  # noqa: B008 - frozen
    data_dir: Path | None = None,
    console: Console | None = None,
) -> Path:
    """Runs or resumes a study and writes its page.

    Args:
        name: name of the study.
        to: its folder; None for studies/NAME.
        seeds: runs of each arm; None for the study's own number.
        budget: share of the work.
        schedule: "full" or "short"; None chooses the short one, if the study has it, where there is no GPU or TPU.
        arms: arms to run; empty for all.
        machines: where to train.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress and the summary; None for standard output.

    Returns:
        The page.

    Raises:
        UserError: an unknown study, arm or schedule; a folder that holds another study or is in use; missing data; or a
            run that keeps dying.

    Example:
        reproduce("depth-contrast", budget=0.01)
    """
    console = console or Console()
    study, schedule = chosen(name, schedule, console)
    if study.search and seeds:
        raise UserError(f"{study.name} draws settings in place of seeds. Leave --seeds out; --budget draws fewer.")
    folder = to or Path("studies") / study.name
    each = "settings of each net" if study.search else "seeds"
    scope = reduced(
        study.arms,
        seeds or study.seeds,
        budget,
        label=study.label,
        defined=study.seeds,
        each=each,
        tested=study.tested,
    )
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    asked = _asked(study, arms)
    whole = dict(scope.arms)
    plan = StudyPlan(study=study.name, schedule=schedule, budget=budget, backend=backend, arms=whole)
    part = replace(scope, arms={arm: whole[arm] for arm in asked})
    with removing_new(folder):
        STUDY_FILE.keep(plan, folder)
        with STUDY_FILE.locked(folder):
            study_plan.clean(folder)
            try:
                if study.search:
                    search_settings(study, part, folder, data_dir=data_dir, machines=machines, console=console)
                else:
                    refuse_others(study, scope, folder)
                    train_runs(study, part, folder, backend, data_dir=data_dir, machines=machines, console=console)
            except UserError:
                if not study_plan.begun(folder):
                    STUDY_FILE.forget(folder)
                raise
            claim(folder)
            return _page(study, scope, folder, console)


def chosen(name: str, asked: Schedule | None, console: Console) -> tuple[Study, Schedule]:
    """Returns a study by name, on its full or short schedule, and the schedule chosen.

    Args:
        name: name of the study.
        asked: the schedule; None chooses the short one, if the study has it, where there is no GPU or TPU.
        console: where to note that the short schedule was chosen automatically.

    Raises:
        UserError: no study has this name, or it has no short schedule.
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


def _page(study: Study, scope: Scope, folder: Path, console: Console) -> Path:
    from pipelines.studies.framework import results, trials
    from pipelines.studies.run import page

    found = (
        trials.read(search_folder(folder))
        if study.search
        else results.read(_finished(study, scope, folder), tested=study.tested)
    )
    page.write(folder, study, found, scope.label)
    say(console, f"tables and figures {folder / 'README.md'}, every run {folder / 'results.csv'}")
    return folder / "README.md"


def _finished(study: Study, scope: Scope, folder: Path) -> list[tuple[str, int, Path]]:
    """Lists the finished runs, those of arms that an earlier command trained in this folder included."""
    return [
        (arm, seed, task.folder)
        for arm in scope.arms
        for seed in range(scope.seeds)
        if (task := task_of(study, scope, folder, arm, seed)).done
    ]

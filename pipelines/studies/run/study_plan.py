"""The plan of a study in a folder; a repeated command must match it to resume the study.

The folder of a study:

    study.json       the plan
    runs/ARM-seed-0/ the run directory of an arm with a seed
    logs/            output of the processes that trained them
    search/          in place of runs/ and logs/ if settings are drawn at random: a search folder of `highway tune`
    results.csv      one row per run
    figures/         plots
    README.md        tables next to the source's numbers, figures, and how everything was made
"""

import shutil
from pathlib import Path
from typing import Literal

from pipelines.core.config import Config
from pipelines.core.files import remove_leftovers
from pipelines.core.frozen import Frozen, Share
from pipelines.core.plan_file import PlanFile, changes

Schedule = Literal["full", "short"]


class StudyPlan(Frozen):
    """The part of a study that all runs in one folder share. Seeds are not in it: more of them only add runs.

    Nor are arms that the study has gained since.
    """

    study: str
    """Name of the study."""
    budget: Share
    """Share of its work."""
    schedule: Schedule = "full"
    """The full schedule, or the short one."""
    backend: str
    """Keras backend."""
    arms: dict[str, Config]
    """Training configurations by name of the arm."""


def run_folder(folder: Path, arm: str, seed: int) -> Path:
    """The directory of a run."""
    return folder / "runs" / f"{arm}-seed-{seed}"


def search_folder(folder: Path) -> Path:
    """The search folder of a study that draws settings."""
    return folder / "search"


def begun(folder: Path) -> bool:
    """True if there is a study to resume."""
    return (folder / "runs").exists() or search_folder(folder).exists()


def clean(folder: Path) -> None:
    """Removes half-written files of killed processes; no other process may be writing to the folder."""
    for path in (folder, folder / "figures", search_folder(folder)):
        remove_leftovers(path)
    for runs in (folder / "runs", search_folder(folder) / "trials"):
        for path in runs.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)


def _difference(old: StudyPlan, new: StudyPlan) -> str:
    """The first difference between two plans; empty if there is none."""
    for name in ("study", "schedule", "budget", "backend"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            return f"its {name} was {before} and is {now}"
    for arm, config in old.arms.items():
        if arm not in new.arms:
            return f"only one of them has the arm {arm}"
        for name, before, now in changes(config, new.arms[arm]):
            return f"{name} of {arm} was {before} and is {now}"
    return ""


STUDY_FILE = PlanFile(
    "study.json",
    StudyPlan,
    _difference,
    another="the study in {folder} is another one: {difference}. Repeat its own command to resume it, or name another "
    "folder with --to DIR.",
    foreign="{folder} exists and holds no study. Name another folder with --to DIR.",
    busy="another process reproduces a study in {folder}. Wait for it, or name another folder with --to DIR.",
    before_work=("logs",),
)
"""Keeps the plan of a study in its folder."""

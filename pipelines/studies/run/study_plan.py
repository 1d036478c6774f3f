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
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import file_lock, remove_leftovers, write_text
from pipelines.core.frozen import Frozen, Share, flat, read

FILE = "study.json"
Schedule = Literal["full", "short"]


class StudyPlan(Frozen):
    """The part of a study that all runs in one folder share. Seeds are not in it: more of them only add runs."""

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


def keep(plan: StudyPlan, folder: Path) -> None:
    """Writes the plan into its folder, or checks that the plan there is the same.

    Raises:
        UserError: the folder holds another plan or something else.
    """
    path = folder / FILE
    if path.exists():
        difference = _difference(read(path, StudyPlan), plan)
        if difference:
            raise UserError(
                f"the study in {folder} is another one: {difference}. Repeat its own command to resume it, or name "
                "another folder with --to DIR."
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and holds no study. Name another folder with --to DIR.")
    write_text(path, plan.model_dump_json(indent=2) + "\n")


def begun(folder: Path) -> bool:
    """True if there is a study to resume."""
    return (folder / "runs").exists() or search_folder(folder).exists()


def forget(folder: Path) -> None:
    """Removes the plan and logs of a study that never began, and its folder if that leaves it empty."""
    (folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / "logs", ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def clean(folder: Path) -> None:
    """Removes half-written files of killed processes; no other process may be writing to the folder."""
    for path in (folder, folder / "figures", search_folder(folder)):
        remove_leftovers(path)
    for runs in (folder / "runs", search_folder(folder) / "trials"):
        for path in runs.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)


def locked(folder: Path) -> AbstractContextManager[None]:
    """Locks the study for this process until the block ends or the process dies.

    Raises:
        UserError: another process holds it.
    """
    return file_lock(
        folder / FILE,
        f"another process reproduces a study in {folder}. Wait for it, or name another folder with --to DIR.",
    )


def _difference(old: StudyPlan, new: StudyPlan) -> str:
    """The first difference between two plans; empty if there is none."""
    for name in ("study", "schedule", "budget", "backend"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            return f"its {name} was {before} and is {now}"
    for arm in {**old.arms, **new.arms}:
        if arm not in old.arms or arm not in new.arms:
            return f"only one of them has the arm {arm}"
        before, now = flat(old.arms[arm]), flat(new.arms[arm])
        for name, value in now.items():
            if before.get(name) != value:
                return f"{name} of {arm} was {before.get(name)} and is {value}"
    return ""

"""What of a study is run in a folder: the same when the command is repeated, which is how it goes on.

The folder of a study:

    study.json       the plan
    runs/ARM-seed-0/ the run directory of an arm with a seed
    logs/            what the processes that trained them wrote
    search/          in place of both where settings are drawn at random: what `highway tune` leaves of a search
    results.csv      one row a run
    figures/         plots
    README.md        tables beside the source's numbers, the figures, and how all was made
"""

import shutil
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal

from pipelines.core.config import Config, Frozen, Share, read
from pipelines.core.errors import UserError
from pipelines.core.files import held, remove_leftovers, write_text
from pipelines.recipes.provenance import flat

FILE = "study.json"
Schedule = Literal["full", "short"]


class StudyPlan(Frozen):
    """What every run of a study in one folder shares; with more seeds there are only more runs."""

    study: str
    """Its name."""
    budget: Share
    """Of its work."""
    schedule: Schedule = "full"
    """Whether its trainings are the full ones."""
    backend: str
    """Of Keras."""
    arms: dict[str, Config]
    """What is trained."""


def run_folder(folder: Path, arm: str, seed: int) -> Path:
    """Where a run of a study lies."""
    return folder / "runs" / f"{arm}-seed-{seed}"


def search_folder(folder: Path) -> Path:
    """Where a study that draws settings searches."""
    return folder / "search"


def keep(plan: StudyPlan, folder: Path) -> None:
    """Writes the plan into its folder, which is made, or finds the same plan there.

    Raises:
        UserError: something else lies there, or another plan.
    """
    path = folder / FILE
    if path.exists():
        difference = _difference(read(path, StudyPlan), plan)
        if difference:
            raise UserError(
                f"the study in {folder} is another one: {difference}. Repeat its own command to go on with it, or name "
                "another folder with --to DIR."
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and holds no study. Name another folder with --to DIR.")
    write_text(path, plan.model_dump_json(indent=2) + "\n")


def begun(folder: Path) -> bool:
    """Whether there is something to go on with."""
    return (folder / "runs").exists() or search_folder(folder).exists()


def forget(folder: Path) -> None:
    """Removes what is in the folder of a study that never began, and the folder if nothing else is there."""
    (folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / "logs", ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def clean(folder: Path) -> None:
    """Removes what processes that were killed have left half-written; nobody else may be writing."""
    for path in (folder, folder / "figures", search_folder(folder)):
        remove_leftovers(path)
    for runs in (folder / "runs", search_folder(folder) / "trials"):
        for path in runs.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)


def locked(folder: Path) -> AbstractContextManager[None]:
    """Holds the study for this process, until the block ends or the process dies.

    Raises:
        UserError: another process holds it.
    """
    return held(
        folder / FILE,
        f"another process reproduces a study in {folder}. Wait for it, or name another folder with --to DIR.",
    )


def _difference(kept: StudyPlan, asked: StudyPlan) -> str:
    """The first thing in which two plans differ."""
    for name in ("study", "schedule", "budget", "backend"):
        before, now = getattr(kept, name), getattr(asked, name)
        if before != now:
            return f"its {name} was {before} and is {now}"
    for arm in {**kept.arms, **asked.arms}:
        if arm not in kept.arms or arm not in asked.arms:
            return f"the arm {arm} is in one of the two alone"
        before, now = flat(kept.arms[arm]), flat(asked.arms[arm])
        for name, value in now.items():
            if before.get(name) != value:
                return f"{name} of {arm} was {before.get(name)} and is {value}"
    return ""

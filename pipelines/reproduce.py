"""`highway reproduce`: runs a study, and makes a page with its tables and figures beside the source's own numbers."""

import os
from pathlib import Path

import tyro
from rich.console import Console

from pipelines import studies
from pipelines.arguments import parse
from pipelines.config import Count, Frozen, Share
from pipelines.errors import UserError
from pipelines.evaluation import Evaluation, read
from pipelines.processes import signals
from pipelines.processes.clock import clock
from pipelines.processes.crew import Member
from pipelines.processes.together import say, train_all
from pipelines.processes.train import EVALUATION
from pipelines.reproducing import plan as plans
from pipelines.reproducing import searching
from pipelines.reproducing.budget import Work, scheduled
from pipelines.reproducing.plan import Plan, run_folder
from pipelines.reproducing.task import StudyTask
from pipelines.run import Run
from pipelines.studies.study import Study

DESCRIPTION = """Runs a study: every arm with every seed, or with many settings; then a page with tables and figures.

  highway reproduce depth-contrast --workers 2    in studies/depth-contrast; repeat the command to go on after any stop
  highway reproduce depth-contrast --budget 0.01  a hundredth of the work; every table and figure says so
  highway reproduce --list                        the studies, and what each takes on this machine"""


class Arguments(Frozen):
    """What to reproduce, and where."""

    name: tyro.conf.Positional[str | None] = None
    """The study."""
    list: bool = False
    """Tell the studies and what each takes on this machine instead; steps that were never measured here are."""
    to: Path | None = None
    """Folder of the study; none is studies/NAME."""
    seeds: Count | None = None
    """Runs of each arm, with the seeds 0, 1, ...; none is the study's. A study that draws settings has none."""
    budget: Share = 1.0
    """Share of the work: fewer seeds or settings, epochs and examples, and a label on every table and figure."""
    workers: Count = 1
    """Runs at the same time, each on its share of the cores."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway reproduce`.

    Raises:
        UserError: see `reproduce`.
        StoppedError: after SIGTERM or Ctrl-C, once all processes have ended.
    """
    given = parse(Arguments, arguments, "highway reproduce", DESCRIPTION)
    with signals.raised():
        if given.list:
            if given.name is not None:
                raise UserError(f"--list takes no study. Did you mean: highway reproduce {given.name}")
            from pipelines.reproducing import listing

            console = Console()
            # What is read by a program is not folded.
            listing.show(given.data_dir, console if console.is_terminal else Console(width=400))
        else:
            reproduce(given, Console())


def reproduce(given: Arguments, console: Console) -> Path:
    """Runs a study, or goes on with it, and makes its page.

    Args:
        given: which, where and how much of it.
        console: for progress, and what is told at the end.

    Returns:
        The page.

    Raises:
        UserError: no or an unknown study, its folder holds another one or is used by another process, the data cannot
            be had, or a run dies again and again.

    Example:
        reproduce(Arguments(name="depth-contrast", budget=0.01), Console())
    """
    if given.name is None:
        raise UserError(f"which study? highway reproduce NAME. Choices: {', '.join(studies.names())}.")
    study = studies.get(given.name)
    if study.search and given.seeds:
        raise UserError(f"{study.name} draws settings in place of seeds. Leave --seeds out; --budget draws fewer.")
    folder = given.to or Path("studies") / study.name
    each = "settings of each net" if study.search else "seeds"
    work = scheduled(study.arms, given.seeds or study.seeds, given.budget, each)
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    plans.keep(Plan(study=study.name, budget=given.budget, backend=backend, arms=dict(work.arms)), folder)
    with plans.locked(folder):
        plans.clean(folder)
        try:
            if study.search:
                searching.search(study, work, folder, data_dir=given.data_dir, workers=given.workers, console=console)
            else:
                _train(work, folder, given, console)
        except UserError:
            if not plans.begun(folder):
                plans.forget(folder)
            raise
        return _page(study, work, folder, console)


def _train(work: Work, folder: Path, given: Arguments, console: Console) -> None:
    members: list[Member] = []
    # Seed by seed, so that a study that is stopped has something of every arm, and the time left is told well.
    for seed in range(work.seeds):
        for name, config in work.arms.items():
            path = run_folder(folder, name, seed)
            one = config.model_copy(update={"seed": seed})
            task = StudyTask(folder=path, data_dir=given.data_dir, config=one, study=str(given.name))
            if not task.done:
                members.append(Member(path.name, task, {}, folder / "logs" / f"{path.name}.log"))
    runs = work.seeds * len(work.arms)
    label = f" ({work.label})" if work.label else ""
    done = f", {runs - len(members)} of them done" if len(members) < runs else ""
    say(console, f"{given.name} in {folder}: {runs} runs{done}{label}")
    train_all(members, workers=given.workers, console=console, doing=str(given.name), found=_told)


def _page(study: Study, work: Work, folder: Path, console: Console) -> Path:
    from pipelines.reproducing import page
    from pipelines.studies import results, trials

    arms = [(arm, seed, run_folder(folder, arm, seed)) for arm in work.arms for seed in range(work.seeds)]
    found = trials.read(plans.search_folder(folder)) if study.search else results.read(arms)
    page.write(folder, study, found, work.label)
    say(console, f"tables and figures {folder / 'README.md'}, every run {folder / 'results.csv'}")
    return folder / "README.md"


def _told(run: Run) -> str:
    measured = read(run.path / EVALUATION, Evaluation)
    found = "diverged" if measured is None else f"test accuracy {measured.accuracy:.2%}"
    return f"{found}, {clock(run.record.seconds)} of training"

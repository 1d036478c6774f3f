"""`highway reproduce`: runs a study, and makes a page with its tables and figures beside the source's own numbers."""

import os
from dataclasses import replace
from pathlib import Path

import tyro
from rich.console import Console

from pipelines import environment, studies
from pipelines.arguments import parse
from pipelines.config import Count, Frozen, Share
from pipelines.errors import UserError, unknown
from pipelines.evaluation import of_run
from pipelines.processes import signals
from pipelines.processes.clock import clock
from pipelines.processes.crew import Member
from pipelines.processes.together import say, train_all
from pipelines.reproducing import plan as plans
from pipelines.reproducing import reuse, searching
from pipelines.reproducing.budget import Work, scheduled
from pipelines.reproducing.plan import Plan, Schedule, run_folder
from pipelines.reproducing.task import StudyTask
from pipelines.run import Run
from pipelines.studies.study import Study

DESCRIPTION = """Runs a study: every arm with every seed, or with many settings; then a page with tables and figures.

  highway reproduce depth-contrast --workers 2    in studies/depth-contrast; repeat the command to go on after any stop
  highway reproduce depth-contrast --budget 0.01  a hundredth of the work; every table and figure says so
  highway reproduce cifar10 --schedule short      ten epochs for each net, in place of hundreds; they say so too
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
    schedule: Schedule | None = None
    """Train as long as the source, or as long as a CPU can; none is short where there is no GPU or TPU, if the study
    has a short schedule."""
    arms: tuple[str, ...] = ()
    """Run these alone, and make the page of them; none is all. Others can be run later, in the same folder."""
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
        UserError: no or an unknown study, arm or schedule, its folder holds another one or is used by another process,
            the data cannot be had, or a run dies again and again.

    Example:
        reproduce(Arguments(name="depth-contrast", budget=0.01), Console())
    """
    if given.name is None:
        raise UserError(f"which study? highway reproduce NAME. Choices: {', '.join(studies.names())}.")
    study, schedule = chosen(given.name, given.schedule, console)
    if study.search and given.seeds:
        raise UserError(f"{study.name} draws settings in place of seeds. Leave --seeds out; --budget draws fewer.")
    folder = given.to or Path("studies") / study.name
    each = "settings of each net" if study.search else "seeds"
    seeds = given.seeds or study.seeds
    work = scheduled(study.arms, seeds, given.budget, label=study.label, each=each, tested=not study.search)
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    asked = _asked(study, given.arms)
    arms = dict(work.arms)
    plans.keep(Plan(study=study.name, schedule=schedule, budget=given.budget, backend=backend, arms=arms), folder)
    work = replace(work, arms={name: arms[name] for name in asked})
    with plans.locked(folder):
        plans.clean(folder)
        try:
            if study.search:
                searching.search(study, work, folder, data_dir=given.data_dir, workers=given.workers, console=console)
            else:
                _train(work, folder, given, backend, console)
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


def _asked(study: Study, names: tuple[str, ...]) -> list[str]:
    if names and study.search:
        raise UserError(f"{study.name} is one search over all its nets. Leave --arms out; --budget draws fewer.")
    for name in names:
        if name not in study.arms:
            raise unknown(f"arm of {study.name}", name, study.arms)
    return [name for name in study.arms if name in names or not names]


def _train(work: Work, folder: Path, given: Arguments, backend: str, console: Console) -> None:
    study = studies.get(str(given.name))
    members: list[Member] = []
    # Seed by seed, so that a study that is stopped has something of every arm, and the time left is told well.
    for seed in range(work.seeds):
        for name, config in work.arms.items():
            path = run_folder(folder, name, seed)
            one = config.seeded(seed, study.draws)
            # What was not watched while it trained cannot be watched now.
            if not path.exists() and not study.watch and (other := reuse.find(one, study.weights, backend, folder)):
                reuse.take(other, path)
                say(console, f"{path.name}: trained already, as {other}")
            task = StudyTask(folder=path, data_dir=given.data_dir, config=one, study=study.name, weights=study.weights)
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
    measured = of_run(run)
    found = "diverged" if measured is None else measured.told
    return f"{found}, {clock(run.record.seconds)} of training"

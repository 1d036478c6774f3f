"""Trains the runs of a study, or searches its settings; copies runs that another study has already made."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from pipelines.core.config import Config
from pipelines.core.console import counted, say
from pipelines.core.durations import clock
from pipelines.core.errors import UserError
from pipelines.core.files import flush
from pipelines.core.ownership import claim
from pipelines.core.plan_file import changes
from pipelines.core.run import MEASURED, Run, Weights, open_run
from pipelines.studies.framework.study import Study
from pipelines.studies.run.budget import Scope
from pipelines.studies.run.study_plan import STUDY_FILE, run_folder, search_folder
from pipelines.studies.run.task import StudyTask, act_on_node
from pipelines.training.evaluation import of_run
from pipelines.training.probe import PROBE_FILE
from pipelines.training.processes.pool import Remote, train_all
from pipelines.training.processes.supervisor import Member
from pipelines.training.processes.train import TrainTask
from pipelines.tuning import search_state
from pipelines.tuning.search import Search, lead
from pipelines.tuning.search_plan import SEARCH_FILE, Budget, Candidate, SearchPlan


@dataclass(frozen=True)
class Machines:
    """The processes or the cluster that train the runs of a study.

    Args:
        workers: number of runs at the same time on this machine, each on its share of the cores.
        cluster: address of the Ray cluster that trains them in its place; None for this machine.
        cores: cores of a run on the cluster.
    """

    workers: int = 1
    cluster: str | None = None
    cores: int = 1


def train_runs(
    study: Study,
    scope: Scope,
    folder: Path,
    backend: str,
    *,
    data_dir: Path | None,
    machines: Machines,
    console: Console,
) -> None:
    """Trains every arm with every seed, or resumes where an earlier command stopped.

    Args:
        study: study that is run.
        scope: its arms and seeds.
        folder: folder of the study, which the caller holds.
        backend: Keras backend.
        data_dir: folder of prepared data; None for the TFDS default.
        machines: where to train.
        console: where to print a line per run and the time left.

    Raises:
        UserError: the data is missing, or a process keeps dying.
    """
    members: list[Member] = []
    if machines.cluster:
        # A node may have another working directory.
        folder, data_dir = folder.absolute(), data_dir and data_dir.expanduser().absolute()
    # Seed by seed, so that a stopped study has runs of every arm, and the time left is estimated well.
    for seed in range(scope.seeds):
        for name in scope.arms:
            task = task_of(study, scope, folder, name, seed, data_dir=data_dir)
            path, seeded = task.folder, task.config
            # A run that was trained without the study's probe cannot be probed afterwards.
            if not path.exists() and not study.probe and (other := find(seeded, study.weights, backend, folder)):
                copy(other, path)
                say(console, f"{path.name}: trained already, as {other}")
            if not task.done:
                members.append(Member(path.name, task, {}, folder / "logs" / f"{path.name}.log"))
    runs = scope.seeds * len(scope.arms)
    say(console, _heading(study, scope, folder, counted(runs, "run"), runs - len(members)))
    remote = _remote(machines, partial(say, console)) if members else None
    result = _result if study.tested else _chosen_by
    train_all(members, workers=machines.workers, console=console, label=study.name, result=result, remote=remote)


def refuse_others(study: Study, scope: Scope, folder: Path) -> None:
    """Refuses runs with other configurations, of arms that a study has gained since its plan was written.

    Args:
        study: study that is run.
        scope: all of its arms, as the page reports them all, and seeds.
        folder: folder of the study.

    Raises:
        UserError: a run has another configuration.
    """
    tasks = (task_of(study, scope, folder, arm, seed) for seed in range(scope.seeds) for arm in scope.arms)
    for task in tasks:
        found = changes(open_run(task.folder).config, task.config) if task.folder.exists() else ()
        for name, before, now in found:
            raise UserError(
                f"{task.folder} was trained with {name} {before}, and this study now has {now}. Remove that folder, or "
                "name another one for the study with --to DIR."
            )


def task_of(
    study: Study, scope: Scope, folder: Path, arm: str, seed: int, *, data_dir: Path | None = None
) -> StudyTask:
    """The task of a run of a study in this folder."""
    return StudyTask(
        folder=run_folder(folder, arm, seed),
        data_dir=data_dir,
        config=scope.arms[arm].seeded(seed, study.draws),
        study=study.name,
        evaluate=study.tested,
        weights=study.weights,
    )


def _remote(machines: Machines, report: Callable[[str], None]) -> Remote | None:
    if machines.cluster is None:
        return None
    from pipelines.core.cluster_executor import ClusterExecutor

    return Remote(ClusterExecutor(machines.cluster, report, machines.cores), act_on_node)


def _heading(study: Study, scope: Scope, folder: Path, total: str, done: int) -> str:
    label = f" ({scope.label})" if scope.label else ""
    return f"{study.name} in {folder}: {total}{f', {done} of them done' if done else ''}{label}"


def _result(run: Run) -> str:
    measured = of_run(run)
    return f"{'diverged' if measured is None else measured.summary}, {clock(run.record.seconds)} of training"


def _chosen_by(run: Run) -> str:
    """The result of a run that is not evaluated on the test split."""
    record = run.record
    score = "diverged" if record.state == "diverged" else f"{record.metrics['val_accuracy']:.2%} of held-out examples"
    return f"{score}, {clock(record.seconds)} of training"


def find(config: Config, weights: Weights, backend: str, folder: Path) -> Path | None:
    """Finds a run of another study, in a sibling folder, with the same training.

    If it has been evaluated, then with the same weights. If not, the study that needs it evaluates its copy.

    Args:
        config: configuration of the run, with its seed.
        weights: weights to evaluate.
        backend: Keras backend.
        folder: folder of the study that needs the run.

    Returns:
        The run directory; None if there is none.
    """
    for study in sorted(folder.resolve().parent.glob(f"*/{STUDY_FILE.name}")):
        if study.parent == folder.resolve():
            continue
        for path in sorted(study.parent.glob(f"runs/*-seed-{config.seed}")):
            if _same(path, config, weights, backend):
                return path
    return None


def _same(path: Path, config: Config, weights: Weights, backend: str) -> bool:
    try:
        run = open_run(path)
        if (run.config, run.record.backend) != (config, backend):
            return False
        found = of_run(run)
        return TrainTask(folder=path, data_dir=None, config=config).done and (found is None or found.weights == weights)
    except (UserError, OSError):
        return False  # The run is of another version or is being removed.


def copy(path: Path, to: Path) -> None:
    """Copies a run directory atomically, without the measurements of its study.

    Args:
        path: path returned by `find`.
        to: run directory to create.
    """
    # `study_plan.clean` removes a folder of this name if the process is killed.
    aside = to.parent / f".{to.name}-{os.getpid()}"
    try:
        shutil.copytree(path, aside, ignore=shutil.ignore_patterns(MEASURED, PROBE_FILE, ".*"))
        for copied in (*aside.rglob("*"), aside):
            flush(copied)
        aside.rename(to)
        flush(to.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def search_settings(
    study: Study, scope: Scope, folder: Path, *, data_dir: Path | None, machines: Machines, console: Console
) -> None:
    """Draws and trains all settings of a study in one search over all nets, or resumes it.

    Args:
        study: study that draws settings.
        scope: its nets and the number of settings.
        folder: folder of the study, which the caller holds.
        data_dir: folder of prepared data; None for the TFDS default.
        machines: where to train.
        console: where to print a table of the trials, or a line for each.

    Raises:
        UserError: the folder holds another search, the data is missing, or a process keeps dying.
    """
    plan = planned(study, scope)
    search = Search(
        plan, search_folder(folder), data_dir, machines.workers, cluster=machines.cluster, cores=machines.cores
    )
    SEARCH_FILE.keep(search.plan, search.folder)
    state = search_state.read(search.folder)
    done = sum(trial.over for trial in state.trials) if state else 0
    say(console, _heading(study, scope, folder, counted(len(scope.arms) * scope.seeds, "setting"), done))
    if state is None or not state.over:
        lead(search, console)
    else:
        # A process that was killed after the last trial has left them. A claim downloads what is missing.
        claim(search.folder)
        search_state.shed_all(search.folder)


def planned(study: Study, scope: Scope) -> SearchPlan:
    """Plans the search of a study, in which every arm is a net and the nets take turns.

    Args:
        study: study that draws settings; its arms differ only in their nets.
        scope: its nets and the number of settings.

    Raises:
        ValueError: the study draws no settings.

    Example:
        planned(STUDY, reduced(STUDY.arms, STUDY.seeds, 1.0)).trials  # 800
    """
    if study.search is None:
        raise ValueError(f"{study.name} draws no settings")
    whole = next(iter(study.arms.values())).config
    return SearchPlan(
        name=study.name,
        config=next(iter(scope.arms.values())),
        nets=tuple(Candidate(name=name, model=config.model) for name, config in scope.arms.items()),
        space=study.search,
        algorithm="random",
        trials=scope.seeds * len(scope.arms),
        budget=Budget(share=scope.share, trials=study.seeds, epochs=whole.epochs),
    )

"""Searches hyperparameters with KerasTuner, in processes of this machine or of a cluster."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.files import removing_new
from pipelines.core.ownership import claim
from pipelines.core.sync import place_of
from pipelines.core.url import Location
from pipelines.data.roots import refuse_missing
from pipelines.training.processes.local_executor import LocalExecutor
from pipelines.training.processes.pool import Remote
from pipelines.training.processes.supervisor import DiedError
from pipelines.tuning import search_state as states
from pipelines.tuning.progress import SearchProgress
from pipelines.tuning.search_plan import SEARCH_FILE, SearchPlan

VARIABLES = ("KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT")
"""Variables that start KerasTuner's own search over several machines."""


@dataclass(frozen=True)
class Search:
    """A search, and where its trials run."""

    plan: SearchPlan
    folder: Path
    data_dir: Path | None = None
    """Folder of prepared data; None for the TFDS default."""
    workers: int = 1
    """Number of processes of this machine that train at the same time."""
    cluster: str | None = None
    """Address of the Ray cluster that trains in their place; None for this machine."""
    cores: int = 1
    """Cores of a trial on the cluster."""

    def executor(self, report: Callable[[str], None]) -> AbstractContextManager[Executor]:
        """Returns the executor of the trials.

        Args:
            report: prints a line when a process has died.
        """
        if self.cluster is None:
            return LocalExecutor(self.folder, self.workers, report)
        from pipelines.core.cluster_executor import ClusterExecutor

        return ClusterExecutor(self.cluster, report, self.cores)

    def place_of(self, path: Path) -> Location:
        """Returns where those who train a run find its directory; workers of this machine use a local copy."""
        return place_of(path) if self.cluster else path


def tune(search: Search, *, minutes: float | None = None, retrain: int = 0, console: Console | None = None) -> None:
    """Runs or resumes a search and summarizes it.

    Args:
        search: the search; one in its folder is resumed if it has the same plan.
        minutes: minutes until the search stops; None for no deadline.
        retrain: number of times to train the winner at the end.
        console: where to print the table and the summary; None for standard output.

    Raises:
        UserError: the folder holds another search or another process is searching there, the data are not available, a
            process of the search dies repeatedly, or no trial has a result.

    Example:
        plan = planned("demo", config, space, algorithm="random", trials=30)
        tune(Search(plan, Path("searches/demo"), workers=2))
    """
    _refuse_variables()
    console = console or Console()
    config = _prepared(search.plan.config, search.data_dir, console)
    search = replace(search, plan=search.plan.model_copy(update={"config": config}))
    with removing_new(search.folder):
        SEARCH_FILE.keep(search.plan, search.folder)
        with SEARCH_FILE.locked(search.folder):
            state = states.read(search.folder)
            if state is None or not state.over:
                _announce(search, resumes=state is not None, console=console)
                lead(search, console, minutes)
            else:
                # A process that was killed after the last trial has left them. A claim downloads what is missing.
                claim(search.folder)
                states.shed_all(search.folder)
            _summarize(search, retrain, console)


def lead(search: Search, console: Console, minutes: float | None = None) -> None:
    """Leads a search to its end or deadline; the caller must hold the lock of its folder.

    Args:
        search: the search.
        console: where to print a table of the trials, or a line for each.
        minutes: minutes until the search stops; None for no deadline.

    Raises:
        UserError: the data are not available, no trial can be trained, or a process dies repeatedly. A search that
            never began leaves no files.
    """
    plan, folder = search.plan, search.folder
    ends = time.time() + 60 * minutes if minutes else None
    progress = SearchProgress(console, plan, folder, search.workers)
    try:
        with progress:
            with search.executor(progress.say) as executor:
                # Its processes load the frameworks in the meantime.
                frameworks.load()
                from pipelines.tuning import driver, results

                asked = driver.opened(plan, folder, search.data_dir)
                driver.drive(
                    asked, executor, data_dir=search.data_dir, ends=ends, place_of=search.place_of,
                    update=progress.update,
                )  # fmt: skip
            asked.pause()
    except UserError as error:
        if states.read(folder) is None and not isinstance(error, DiedError):
            # The corrected command will be another search, which this folder must then accept.
            SEARCH_FILE.forget(folder)
        raise
    if state := states.read(folder):
        results.write_hparams(folder, plan, state)


def _refuse_variables() -> None:
    if given := [name for name in VARIABLES if name in os.environ]:
        raise UserError(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, and searches on several machines use "
            "Ray now. Unset the variables KERASTUNER_*, and name a cluster with --cluster ADDRESS, or none to search "
            "on this machine."
        )


def _prepared(config: Config, data_dir: Path | None, console: Console) -> Config:
    """Prepares the user's own data once, before any process reads them, and refuses options that data do not have."""
    refuse_missing(config.data)
    frameworks.load()
    from pipelines.data.own.prepare import resolved

    return resolved(config, data_dir, console)


def _announce(search: Search, *, resumes: bool, console: Console) -> None:
    plan = search.plan
    label = f" ({plan.label})" if plan.label else ""
    if resumes:
        say(console, f"resumes the search in {search.folder}{label}")
    else:
        say(console, f"{plan.algorithm} search over {plan.name}{label} in {search.folder}")


def _summarize(search: Search, seeds: int, console: Console) -> None:
    """Writes tables, figures and recipes of the finished trials, and retrains the winners if requested."""
    from pipelines.tuning import figures, results
    from pipelines.tuning.retrain import retrain, retrain_on_node

    plan, folder = search.plan, search.folder
    state = states.read(folder)
    if state is None or not any(trial.over for trial in state.trials):
        raise UserError(f"no trial finished before the deadline. Repeat the command to resume {folder}.")
    claim(folder)
    if not state.over:
        done = sum(trial.over for trial in state.trials)
        say(console, f"stopped at the deadline after {done} trials; repeat the command to resume")
    recipes = results.write(folder, plan, state)
    figures.draw(folder, plan, state)
    for line in results.report(plan, state, recipes):
        say(console, line)
    if seeds and not state.over:
        say(console, "the winner is retrained once all trials are done")
    elif seeds:
        remote = Remote(search.executor(partial(say, console)), retrain_on_node) if search.cluster else None
        retrain(
            recipes, folder, seeds=seeds, workers=search.workers, data_dir=search.data_dir, objective=state.objective,
            console=console, remote=remote,
        )  # fmt: skip

"""The driver of a search: runs its trials with an executor, on this machine or on a cluster."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import keras

from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.ownership import claim
from pipelines.core.sync import refresh
from pipelines.core.url import Location
from pipelines.training.assembly import assemble
from pipelines.tuning import search_state, trials
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.space import Value, samples, searched
from pipelines.tuning.trial_task import TrialTask, run

POLL = 0.1
"""Seconds between two updates of the display."""


def opened(plan: SearchPlan, folder: Path, data_dir: Path | None) -> AskTell:
    """Begins or resumes the search of a folder.

    Args:
        plan: the plan of the search.
        folder: the folder of the search.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        The search.

    Raises:
        UserError: the data are not available, a search that has not begun has no trial that can be trained, or one that
            an earlier version began has another objective.
    """
    objective = trials.objective(plan.config, data_dir)
    begun = search_state.read(folder)
    if begun is None:
        _check_trainable(plan, data_dir)
    elif begun.objective != objective:
        raise UserError(
            f"an earlier version began the search in {folder}: it minimizes the {begun.objective.label}, and this "
            f"version the {objective.label}, without label smoothing and penalties. Search in another folder with "
            "--to DIR."
        )
    claim(folder)
    return AskTell(plan, objective, folder)


def drive(
    search: AskTell,
    executor: Executor,
    *,
    data_dir: Path | None = None,
    ends: float | None = None,
    place_of: Callable[[Path], Location] = Path,
    update: Callable[[], None] = lambda: None,
) -> None:
    """Runs the trials of a search until it is over or its deadline passes.

    Args:
        search: the search.
        executor: runs the trials.
        data_dir: folder of prepared data; None for the TFDS default.
        ends: the deadline, in seconds since 1970; None for none.
        place_of: returns where the machines of the executor find the run directory of a trial; see
            `pipelines.core.sync.place_of`.
        update: updates the display; called about ten times a second.

    Raises:
        UserError: no trial can continue.
    """
    # A node of a cluster may have another working directory.
    folder, data_dir = search.folder.absolute(), data_dir and data_dir.expanduser().absolute()
    # The oracle is not asked again before a trial has ended.
    asking, running = True, dict[str, tuple[str, Path]]()
    while not search.over and not (ends and time.time() > ends):
        update()
        # Asked even if there is no trial to start: it raises an error if the running ones have no machine left.
        capacity = executor.capacity()
        while asking and search.running < capacity:
            proposal = search.ask()
            asking = proposal is not None
            if proposal:
                path = folder / "trials" / proposal.root
                task = TrialTask(
                    search.plan, proposal.values, proposal.epochs, place_of(path), data_dir, search.objective
                )
                # As in the table: messages about lost processes name the trial.
                key = f"trial {proposal.number}"
                running[key] = proposal.number, path
                executor.submit(key, task, run)
        for outcome in executor.finished(POLL):
            asking = True
            number, path = running.pop(outcome.key)
            if place_of(path) != path:
                refresh(path)
            if outcome.error is None:
                search.tell(number, outcome.result)
            else:
                search.fail(number, outcome.error)
                search_state.shed(path)
    if search.over:
        # Hyperband has stopped most trials before their last epoch, with what they needed to continue.
        search_state.shed_all(folder)


def _check_trainable(plan: SearchPlan, data_dir: Path | None) -> None:
    """Refuses a search if none of its settings can be trained."""
    space = {name: samples(name, bounds) for name, bounds in searched(plan.space).items()}
    refusals: list[UserError] = []
    # Tries every choice, and both ends of every range, until one setting can be trained; nearly always the first can.
    for turn in range(max(map(len, space.values()))):
        values: dict[str, Value] = {name: drawn[turn % len(drawn)] for name, drawn in space.items()}
        if plan.nets:
            values["net"] = plan.nets[0].name
        try:
            # Warnings about a net belong in the log of its trial.
            with warnings.catch_warnings(action="ignore"):
                assemble(plan.configured(values), data_dir)
        except UserError as error:
            refusals.append(error)
        else:
            return
        finally:
            keras.utils.clear_session()
    raise refusals[0]

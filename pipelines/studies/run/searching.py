"""A study whose settings are drawn at random: a search of the kind that `highway tune` leads, over all its nets."""

from pathlib import Path

from rich.console import Console

from pipelines.studies.framework.study import Study
from pipelines.studies.run.budget import Work
from pipelines.studies.run.plan import search_folder
from pipelines.training.processes.pool import say
from pipelines.tuning import search as searches
from pipelines.tuning import search_plan as plans
from pipelines.tuning import search_state as states
from pipelines.tuning.search_plan import Budget, Candidate, SearchPlan


def search(study: Study, work: Work, folder: Path, *, data_dir: Path | None, workers: int, console: Console) -> None:
    """Draws and trains all settings of a study, or goes on with it.

    Args:
        study: with what is drawn.
        work: what is trained.
        folder: of the study, which the caller holds.
        data_dir: where prepared data lies; None for the default of TFDS.
        workers: trials at the same time, each on its share of the cores.
        console: for a table of the trials, or a line for each.

    Raises:
        UserError: the folder holds another search, the data cannot be had, or a process dies again and again.
    """
    one = searches.local_search(planned(study, work), search_folder(folder), data_dir)
    plans.keep(one.plan, one.folder)
    state = states.read(one.folder)
    drawn = len(work.arms) * work.seeds
    over = sum(trial.over for trial in state.trials) if state else 0
    done = f", {over} of them done" if over else ""
    say(console, f"{study.name} in {folder}: {drawn} settings{done}{f' ({work.label})' if work.label else ''}")
    if state is None or not state.over:
        names = searches.worker_names(workers)
        searches.lead(one, [searches.chief_member(one), *searches.worker_members(one, names)], console)


def planned(study: Study, work: Work) -> SearchPlan:
    """The search of a study.

    Args:
        study: with what is drawn; its arms differ in their nets alone.
        work: what is trained.

    Returns:
        A plan in which every arm is a net, and the nets take turns.

    Raises:
        ValueError: the study draws nothing.

    Example:
        planned(STUDY, scheduled(STUDY.arms, STUDY.seeds, 1.0)).trials  # 800
    """
    if study.search is None:
        raise ValueError(f"{study.name} draws no settings")
    whole = next(iter(study.arms.values())).config
    return SearchPlan(
        name=study.name,
        config=next(iter(work.arms.values())),
        nets=tuple(Candidate(name=name, model=config.model) for name, config in work.arms.items()),
        space=study.search,
        algorithm="random",
        trials=work.seeds * len(work.arms),
        budget=Budget(share=work.share, trials=study.seeds, epochs=whole.epochs),
    )

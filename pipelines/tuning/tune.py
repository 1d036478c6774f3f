"""Searches hyperparameters with KerasTuner, by a chief and workers on this machine or on several."""

import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.training.processes.pool import say
from pipelines.training.processes.supervisor import Supervisor
from pipelines.tuning import plan as plans
from pipelines.tuning import search as searches
from pipelines.tuning import state as states
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.search import ADDRESS, ID, LOOK, LOOPBACK, PORT, Search, chief, here, lead, numbered


def tune(
    plan: SearchPlan,
    folder: Path,
    *,
    workers: int = 1,
    minutes: float | None = None,
    retrain: int = 0,
    data_dir: Path | None = None,
    console: Console | None = None,
) -> None:
    """Searches, or goes on with a search, and sums it up.

    Args:
        plan: what to search, from `planned`.
        folder: of the search; a search in it is resumed if it has the same plan.
        workers: processes that train at the same time.
        minutes: after which the search stops; None for no deadline.
        retrain: so many times the winner is trained at the end.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for the table and the summary; None for one of standard output.

    Raises:
        UserError: the folder holds another search or another process searches there, the data cannot be had, a process
            of the search dies again and again, or no trial has a result.

    Example:
        tune(planned("demo", config, space, algorithm="random", trials=30), Path("searches/demo"), workers=2)
    """
    console = console or Console()
    search = _search(plan, folder, data_dir)
    identity = os.environ.get(ID, "")
    plans.keep(plan, folder)
    if identity and "chief" not in identity:
        _work(search, workers, identity, console)
        return
    with plans.locked(folder):
        state = states.read(folder)
        if state is None or not state.over:
            _tell(search, identity, began=state is not None, console=console)
            names = [] if identity else numbered(workers)
            lead(search, [chief(search, identity or "chief", minutes), *searches.workers(search, names)], console)
        more = {"seeds": retrain, "workers": workers, "data_dir": data_dir}
        _sum_up(plan, folder, console, more)


def _tell(search: Search, identity: str, *, began: bool, console: Console) -> None:
    plan = search.plan
    label = f" ({plan.label})" if plan.label else ""
    if began:
        say(console, f"goes on with the search in {search.folder}{label}")
    else:
        say(console, f"{plan.algorithm} search over {plan.name}{label} in {search.folder}")
    if identity:
        say(console, f"the chief listens at {search.address}:{search.port}; trials wait for workers")


def _work(search: Search, count: int, identity: str, console: Console) -> None:
    names = [identity] if count == 1 else [f"{identity}-{number}" for number in range(count)]
    members = searches.workers(search, names)
    address = f"{search.address}:{search.port}"
    say(console, f"{', '.join(names)} for the chief at {address}; output in {members[0].log.parent}")
    with Supervisor(members, lambda line: say(console, line)) as supervisor:
        while supervisor.works():
            time.sleep(LOOK)
    say(console, "the chief has no more trials, or its time is over")


def _sum_up(plan: SearchPlan, folder: Path, console: Console, winners: dict[str, Any]) -> None:
    """Tables, figures and recipes of what is done so far; the winners are retrained if that was asked for."""
    from pipelines.tuning import figures, results
    from pipelines.tuning.retrain import retrain

    state = states.read(folder)
    if state is None or not any(trial.over for trial in state.trials):
        raise UserError(f"no trial was done before the deadline. Repeat the command to go on with {folder}.")
    if not state.over:
        done = sum(trial.over for trial in state.trials)
        console.print(f"stopped at the deadline after {done} trials; repeat the command to go on", highlight=False)
    recipes = results.write(folder, plan, state)
    figures.draw(folder, plan, state)
    for line in results.told(plan, state, recipes):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if winners["seeds"] and not state.over:
        console.print("the winner is retrained once all trials are done", highlight=False)
    elif winners["seeds"]:
        retrain(recipes, folder, **winners, objective=state.objective, console=console)


def _search(plan: SearchPlan, folder: Path, data_dir: Path | None) -> Search:
    """The search, with the address of its chief from KerasTuner's variables, or a free port of this machine alone."""
    if not {ID, ADDRESS, PORT} & set(os.environ):
        return here(plan, folder, data_dir)
    if not os.environ.get(ID) or not os.environ.get(PORT):
        raise UserError(
            f"a search over several machines needs {ID} (chief, or a name of each worker), {PORT}, and {ADDRESS}, "
            f"the chief's address (none is {LOOPBACK}). Set them, or none of them to search on this machine alone."
        )
    port = os.environ[PORT]
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(f"{PORT} is a port, 1 to {2**16 - 1}. Received: {port}.")
    return Search(plan, folder, data_dir, os.environ.get(ADDRESS) or LOOPBACK, port)

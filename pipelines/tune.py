"""`highway tune`: searches the hyperparameters of a recipe with KerasTuner."""

import os
import time

from rich.console import Console

from pipelines.errors import UserError
from pipelines.processes import signals
from pipelines.processes.crew import Crew
from pipelines.processes.together import say
from pipelines.tuning import plan as plans
from pipelines.tuning import state as states
from pipelines.tuning.arguments import TuneArguments, parse_tune
from pipelines.tuning.search import ADDRESS, ID, LOOK, LOOPBACK, PORT, Search, chief, here, lead, numbered, workers


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Without KerasTuner's environment variables this process starts a chief and workers of its own; with them it is the
    chief, or workers, of a search over several machines.

    Args:
        arguments: the words after `highway tune`.

    Raises:
        UserError: see `tune`.
        StoppedError: after SIGTERM or Ctrl-C, once all processes have ended.
    """
    with signals.raised():
        tune(parse_tune(arguments), Console())


def tune(given: TuneArguments, console: Console) -> None:
    """Searches, or goes on with a search, and sums it up.

    Args:
        given: what to search, and where.
        console: for the table, and what is told at the end.

    Raises:
        UserError: the folder holds another search or another process searches there, the data cannot be had, a process
            of the search dies again and again, or no trial has a result.

    Example:
        tune(parse_tune(["demo", "--trials", "30", "--workers", "2"]), Console())
    """
    search = _search(given)
    identity = os.environ.get(ID, "")
    plans.keep(given.plan, given.folder)
    if identity and "chief" not in identity:
        _work(search, given.workers, identity, console)
        return
    with plans.locked(given.folder):
        state = states.read(given.folder)
        if state is None or not state.over:
            _tell(search, identity, began=state is not None, console=console)
            names = [] if identity else numbered(given.workers)
            lead(search, [chief(search, identity or "chief", given.minutes), *workers(search, names)], console)
        _sum_up(given, console)


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
    members = workers(search, names)
    address = f"{search.address}:{search.port}"
    say(console, f"{', '.join(names)} for the chief at {address}; output in {members[0].log.parent}")
    with Crew(members, lambda line: say(console, line)) as crew:
        while crew.works():
            time.sleep(LOOK)
    say(console, "the chief has no more trials, or its time is over")


def _sum_up(given: TuneArguments, console: Console) -> None:
    """Tables, figures and recipes of what is done so far; the winners are retrained if that was asked for."""
    from pipelines.tuning import pictures, results

    plan, folder = given.plan, given.folder
    state = states.read(folder)
    if state is None or not any(trial.over for trial in state.trials):
        raise UserError(f"no trial was done before the deadline. Repeat the command to go on with {folder}.")
    if not state.over:
        done = sum(trial.over for trial in state.trials)
        console.print(f"stopped at the deadline after {done} trials; repeat the command to go on", highlight=False)
    recipes = results.write(folder, plan, state)
    pictures.draw(folder, plan, state)
    for line in results.told(plan, state, recipes):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if given.retrain and not state.over:
        console.print("the winner is retrained once all trials are done", highlight=False)
    elif given.retrain:
        from pipelines.tuning.retrain import retrain

        retrain(
            recipes,
            folder,
            seeds=given.retrain,
            workers=given.workers,
            data_dir=given.data_dir,
            objective=state.objective,
            console=console,
        )


def _search(given: TuneArguments) -> Search:
    """The search, with the address of its chief from KerasTuner's variables, or a free port of this machine alone."""
    if not {ID, ADDRESS, PORT} & set(os.environ):
        return here(given.plan, given.folder, given.data_dir)
    if not os.environ.get(ID) or not os.environ.get(PORT):
        raise UserError(
            f"a search over several machines needs {ID} (chief, or a name of each worker), {PORT}, and {ADDRESS}, "
            f"the chief's address (none is {LOOPBACK}). Set them, or none of them to search on this machine alone."
        )
    port = os.environ[PORT]
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(f"{PORT} is a port, 1 to {2**16 - 1}. Received: {port}.")
    return Search(given.plan, given.folder, given.data_dir, os.environ.get(ADDRESS) or LOOPBACK, port)

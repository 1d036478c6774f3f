"""`highway tune`: searches the hyperparameters of a recipe with KerasTuner."""

import os
import re
import socket
import time
from pathlib import Path

from rich.console import Console

from pipelines import environment
from pipelines.errors import UserError
from pipelines.processes import signals
from pipelines.processes.crew import Crew, DiedError, Member, shares
from pipelines.tuning import plan as plans
from pipelines.tuning import state as states
from pipelines.tuning.arguments import TuneArguments, parse_tune
from pipelines.tuning.board import Board
from pipelines.tuning.process import SearchTask

LOOPBACK = "127.0.0.1"
ID, ADDRESS, PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"
LOOK = 0.1
"""Seconds between two looks at the processes."""


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
    where = _where()
    identity = os.environ.get(ID, "")
    plans.keep(given.plan, given.folder)
    if identity and "chief" not in identity:
        _work(given, console, identity, where)
        return
    with plans.locked(given.folder):
        state = states.read(given.folder)
        if state is None or not state.over:
            names = [] if identity else [f"worker-{number}" for number in range(given.workers)]
            try:
                _lead(given, console, [_chief(given, identity or "chief", where), *_workers(given, names, where)])
            except UserError as error:
                if states.read(given.folder) is None and not isinstance(error, DiedError):
                    # Nothing was searched: the command is mended and repeated, which would be another search.
                    plans.forget(given.folder)
                raise
        _sum_up(given, console)


def _lead(given: TuneArguments, console: Console, members: list[Member]) -> None:
    plan = given.plan
    board = Board(console, plan, given.folder, len(members) - 1)
    before = states.read(given.folder)
    label = f" ({plan.label})" if plan.label else ""
    if before:
        board.say(f"goes on with the search in {given.folder}{label}")
    else:
        board.say(f"{plan.algorithm} search over {plan.name}{label} in {given.folder}")
    if len(members) == 1:
        environment = members[0].environment
        board.say(f"the chief listens at {environment[ADDRESS]}:{environment[PORT]}; trials wait for workers")
    with board, Crew(members, board.say) as crew:
        while crew.works():
            board.update()
            time.sleep(LOOK)


def _work(given: TuneArguments, console: Console, identity: str, where: tuple[str, str]) -> None:
    names = [identity] if given.workers == 1 else [f"{identity}-{number}" for number in range(given.workers)]
    members = _workers(given, names, where)
    board = Board(console, given.plan, given.folder, given.workers)
    board.say(f"{', '.join(names)} for the chief at {':'.join(where)}; output in {members[0].log.parent}")
    with Crew(members, board.say) as crew:
        while crew.works():
            time.sleep(LOOK)
    board.say("the chief has no more trials, or its time is over")


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


def _chief(given: TuneArguments, identity: str, where: tuple[str, str]) -> Member:
    ends = time.time() + 60 * given.minutes if given.minutes else None
    task = SearchTask(role="chief", folder=given.folder, data_dir=given.data_dir, ends=ends)
    return Member(identity, task, _variables(identity, where), _log(given, identity), leads=True)


def _workers(given: TuneArguments, names: list[str], where: tuple[str, str]) -> list[Member]:
    cores = shares(environment.available(), len(names))
    return [
        Member(
            name,
            SearchTask(role="worker", folder=given.folder, data_dir=given.data_dir, cores=share),
            _variables(name, where),
            _log(given, name),
        )
        for name, share in zip(names, cores, strict=True)
    ]


def _log(given: TuneArguments, name: str) -> Path:
    return given.folder / "logs" / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)}.log"


def _variables(identity: str, where: tuple[str, str]) -> dict[str, str]:
    address, port = where
    # A proxy for the web must not be asked for a chief.
    return {ID: identity, ADDRESS: address, PORT: port, "no_grpc_proxy": address}


def _where() -> tuple[str, str]:
    """Address and port of the chief: from KerasTuner's variables, or a free port of this machine alone."""
    if ID in os.environ or ADDRESS in os.environ or PORT in os.environ:
        if not os.environ.get(ID) or not os.environ.get(PORT):
            raise UserError(
                f"a search over several machines needs {ID} (chief, or a name of each worker), {PORT}, and {ADDRESS}, "
                f"the chief's address (none is {LOOPBACK}). Set them, or none of them to search on this machine alone."
            )
        port = os.environ[PORT]
        if not (port.isdecimal() and 0 < int(port) < 2**16):
            raise UserError(f"{PORT} is a port, 1 to {2**16 - 1}. Received: {port}.")
        return os.environ.get(ADDRESS) or LOOPBACK, port
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return LOOPBACK, str(probe.getsockname()[1])

"""Searches hyperparameters with KerasTuner, using a chief and workers on one machine or several."""

import os
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from rich.console import Console

from pipelines.core import environment, frameworks
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.data.roots import refuse_missing
from pipelines.training.processes.supervisor import DiedError, Member, Supervisor, shares
from pipelines.training.processes.task import Task
from pipelines.tuning import search_state as states
from pipelines.tuning.progress import SearchProgress
from pipelines.tuning.search_plan import SEARCH_FILE, SearchPlan

LOOPBACK = "127.0.0.1"
ID, ADDRESS, PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"
POLL = 0.1
"""Seconds between two checks of the processes."""


class SearchTask(Task):
    """Task of a process in a search; `folder` is the folder of the search."""

    module: ClassVar[str] = f"{__package__}.distributed.process"
    program: ClassVar[str] = "highway tune"
    role: Literal["chief", "worker"]
    """Lead the search, or train its trials."""
    ends: float | None = None
    """Deadline of the chief, in seconds since 1970; None for none."""


@dataclass(frozen=True)
class Search:
    """A search and the address of its chief."""

    plan: SearchPlan
    folder: Path
    data_dir: Path | None
    """Folder of prepared data; None for the TFDS default."""
    address: str
    port: str


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
    """Runs or resumes a search and summarizes it.

    Args:
        plan: the result of `planned`.
        folder: the folder of the search; a search in it is resumed if it has the same plan.
        workers: number of processes that train at the same time.
        minutes: minutes until the search stops; None for no deadline.
        retrain: number of times to train the winner at the end.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print the table and the summary; None for standard output.

    Raises:
        UserError: the folder holds another search or another process is searching there, the data are not available, a
            process of the search dies repeatedly, or no trial has a result.

    Example:
        tune(planned("demo", config, space, algorithm="random", trials=30), Path("searches/demo"), workers=2)
    """
    console = console or Console()
    plan = plan.model_copy(update={"config": _prepared(plan.config, data_dir, console)})
    search = _search(plan, folder, data_dir)
    identity = os.environ.get(ID, "")
    SEARCH_FILE.keep(plan, folder)
    if identity and "chief" not in identity:
        _work(search, workers, identity, console)
        return
    with SEARCH_FILE.locked(folder):
        state = states.read(folder)
        if state is None or not state.over:
            _announce(search, identity, resumes=state is not None, console=console)
            names = [] if identity else worker_names(workers)
            lead(search, [chief_member(search, identity or "chief", minutes), *worker_members(search, names)], console)
        _summarize(plan, folder, console, {"seeds": retrain, "workers": workers, "data_dir": data_dir})


def _prepared(config: Config, data_dir: Path | None, console: Console) -> Config:
    """Prepares the user's own data once, before any process reads them."""
    refuse_missing(config.data)
    if not Path(config.data).expanduser().exists():
        return config
    frameworks.load()
    from pipelines.data.own.prepare import resolved

    return resolved(config, data_dir, console)


def local_search(plan: SearchPlan, folder: Path, data_dir: Path | None) -> Search:
    """Returns a search whose chief listens on a free local port, for this machine only.

    Args:
        plan: the plan of the search.
        folder: the folder of the search.
        data_dir: folder of prepared data; None for the TFDS default.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return Search(plan, folder, data_dir, LOOPBACK, str(probe.getsockname()[1]))


def chief_member(search: Search, name: str = "chief", minutes: float | None = None) -> Member:
    """Describes the process that leads a search.

    Args:
        search: the search.
        name: name of the process.
        minutes: minutes until the search stops; None for no deadline.
    """
    ends = time.time() + 60 * minutes if minutes else None
    task = SearchTask(role="chief", folder=search.folder, data_dir=search.data_dir, ends=ends)
    return Member(name, task, _variables(search, name), _log(search, name), leads=True)


def worker_members(search: Search, names: Sequence[str]) -> list[Member]:
    """Describes the processes that train the trials of a search, each on its share of the cores.

    Args:
        search: the search.
        names: names of the processes.
    """
    cores = shares(environment.available(), len(names))
    return [
        Member(
            name,
            SearchTask(role="worker", folder=search.folder, data_dir=search.data_dir, cores=share),
            _variables(search, name),
            _log(search, name),
        )
        for name, share in zip(names, cores, strict=True)
    ]


def worker_names(count: int) -> list[str]:
    """Names the workers of this machine."""
    return [f"worker-{number}" for number in range(count)]


def lead(search: Search, members: Sequence[Member], console: Console) -> None:
    """Leads a search to its end or deadline; the caller must hold the lock of its folder.

    Args:
        search: the search.
        members: its chief, then its workers.
        console: where to print a table of the trials, or a line for each.

    Raises:
        UserError: the data are not available, no trial can be trained, or a process dies repeatedly. A search that
            never began leaves no files.
    """
    progress = SearchProgress(console, search.plan, search.folder, len(members) - 1)
    try:
        with progress, Supervisor(members, progress.say) as supervisor:
            while supervisor.works():
                progress.update()
                time.sleep(POLL)
    except UserError as error:
        if states.read(search.folder) is None and not isinstance(error, DiedError):
            # The user's corrected command is another search, which this folder must then accept.
            SEARCH_FILE.forget(search.folder)
        raise


def _search(plan: SearchPlan, folder: Path, data_dir: Path | None) -> Search:
    """Returns the search with its chief's address: from KerasTuner's variables, or a free local port without them."""
    if not {ID, ADDRESS, PORT} & set(os.environ):
        return local_search(plan, folder, data_dir)
    if not os.environ.get(ID) or not os.environ.get(PORT):
        raise UserError(
            f"a search over several machines needs {ID} (chief, or the name of a worker), {PORT}, and {ADDRESS}, the "
            f"address of the chief (default {LOOPBACK}). Set them, or unset them all to search on this machine alone."
        )
    port = os.environ[PORT]
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(f"{PORT} must be a port, 1 to {2**16 - 1}. Received: {port}.")
    return Search(plan, folder, data_dir, os.environ.get(ADDRESS) or LOOPBACK, port)


def _announce(search: Search, identity: str, *, resumes: bool, console: Console) -> None:
    plan = search.plan
    label = f" ({plan.label})" if plan.label else ""
    if resumes:
        say(console, f"resumes the search in {search.folder}{label}")
    else:
        say(console, f"{plan.algorithm} search over {plan.name}{label} in {search.folder}")
    if identity:
        say(console, f"the chief listens at {search.address}:{search.port}; trials wait for workers")


def _work(search: Search, count: int, identity: str, console: Console) -> None:
    names = [identity] if count == 1 else [f"{identity}-{number}" for number in range(count)]
    members = worker_members(search, names)
    address = f"{search.address}:{search.port}"
    say(console, f"{', '.join(names)} for the chief at {address}; output in {members[0].log.parent}")
    with Supervisor(members, lambda line: say(console, line)) as supervisor:
        while supervisor.works():
            time.sleep(POLL)
    say(console, "the chief has no more trials, or its deadline has passed")


def _summarize(plan: SearchPlan, folder: Path, console: Console, retraining: dict[str, Any]) -> None:
    """Writes tables, figures and recipes of the finished trials, and retrains the winners if requested."""
    from pipelines.tuning import figures, results
    from pipelines.tuning.retrain import retrain

    state = states.read(folder)
    if state is None or not any(trial.over for trial in state.trials):
        raise UserError(f"no trial finished before the deadline. Repeat the command to resume {folder}.")
    if not state.over:
        done = sum(trial.over for trial in state.trials)
        say(console, f"stopped at the deadline after {done} trials; repeat the command to resume")
    recipes = results.write(folder, plan, state)
    figures.draw(folder, plan, state)
    for line in results.report(plan, state, recipes):
        say(console, line)
    if retraining["seeds"] and not state.over:
        say(console, "the winner is retrained once all trials are done")
    elif retraining["seeds"]:
        retrain(recipes, folder, **retraining, objective=state.objective, console=console)


def _log(search: Search, name: str) -> Path:
    return search.folder / "logs" / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)}.log"


def _variables(search: Search, name: str) -> dict[str, str]:
    # gRPC must not connect to the chief through a web proxy.
    return {ID: name, ADDRESS: search.address, PORT: search.port, "no_grpc_proxy": search.address}

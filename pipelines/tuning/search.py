"""A search, led on this machine to its end from wherever it stands: the processes of its chief and its workers."""

import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.training.processes.supervisor import DiedError, Member, Supervisor, shares
from pipelines.tuning import plan as plans
from pipelines.tuning import state as states
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.process import SearchTask
from pipelines.tuning.progress import Board

LOOPBACK = "127.0.0.1"
ID, ADDRESS, PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"
LOOK = 0.1
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Search:
    """A search and the address of its chief."""

    plan: SearchPlan
    folder: Path
    data_dir: Path | None
    """Where prepared data lies; None for the default of TFDS."""
    address: str
    port: str


def here(plan: SearchPlan, folder: Path, data_dir: Path | None) -> Search:
    """A search whose chief can be reached from this machine alone.

    Args:
        plan: of the search.
        folder: of the search.
        data_dir: where prepared data lies; None for the default of TFDS.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return Search(plan, folder, data_dir, LOOPBACK, str(probe.getsockname()[1]))


def chief(search: Search, name: str = "chief", minutes: float | None = None) -> Member:
    """The process that leads a search.

    Args:
        search: the search.
        name: of the process.
        minutes: after which it stops; None goes on to the end.
    """
    ends = time.time() + 60 * minutes if minutes else None
    task = SearchTask(role="chief", folder=search.folder, data_dir=search.data_dir, ends=ends)
    return Member(name, task, _variables(search, name), _log(search, name), leads=True)


def workers(search: Search, names: Sequence[str]) -> list[Member]:
    """The processes that train the trials of a search, each on its share of the cores.

    Args:
        search: the search.
        names: of the processes.
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


def numbered(count: int) -> list[str]:
    """The names of so many workers of this machine."""
    return [f"worker-{number}" for number in range(count)]


def lead(search: Search, members: Sequence[Member], console: Console) -> None:
    """Leads a search until it is over or its time is; whoever calls this holds its folder.

    Args:
        search: the search.
        members: its chief, then its workers.
        console: for a table of the trials, or a line for each.

    Raises:
        UserError: the data cannot be had, no trial can be trained, or a process dies again and again. A search that
            never began leaves nothing behind.
    """
    board = Board(console, search.plan, search.folder, len(members) - 1)
    try:
        with board, Supervisor(members, board.say) as supervisor:
            while supervisor.works():
                board.update()
                time.sleep(LOOK)
    except UserError as error:
        if states.read(search.folder) is None and not isinstance(error, DiedError):
            # Nothing was searched: the command is mended and repeated, which would be another search.
            plans.forget(search.folder)
        raise


def _log(search: Search, name: str) -> Path:
    return search.folder / "logs" / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)}.log"


def _variables(search: Search, name: str) -> dict[str, str]:
    # A proxy for the web must not be asked for a chief.
    return {ID: name, ADDRESS: search.address, PORT: search.port, "no_grpc_proxy": search.address}

"""Trains one run on several nodes of a cluster, a process on each, and resumes it on other nodes if one dies."""

import io
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rich.console import Console

from pipelines.core import signals
from pipelines.core.cluster_executor import ClusterExecutor, Node
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import LostHostError, StoppedError, UserError
from pipelines.core.files import file_lock
from pipelines.core.frozen import read
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX, Hosts, check_batch_size
from pipelines.core.run import BUSY, Record, resuming
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url
from pipelines.training.checkpoint_file import saved_step
from pipelines.training.processes.host import DIED, HostTask, train_together

SETTLE = 25.0
"""Seconds to wait for nodes that are missing."""
RESETTLE = 15.0
"""The same after a loss, if there are enough nodes without them."""
NOTICE = 3.0
"""Seconds until a line says that nodes are missing."""
POLL = 0.5
"""Seconds to wait for the end of a process before its output is shown."""
LOG_POLL = 3.0
"""Seconds between two reads of output in a bucket."""
LOSSES = 3
"""Losses in a row, without a checkpoint in between, after which a run is given up."""
LEADER = "0"
"""Key of the process that writes the run directory."""
TRAINED, LOST = "trained", "lost"
"""Results of a process; any other text says how it was lost."""


@dataclass(frozen=True)
class HostProcess:
    """A task: one of the processes that train a run.

    Args:
        task: the run.
        hosts: the processes, as seen by this one.
    """

    task: HostTask
    hosts: Hosts


def train_on_cluster(task: HostTask, cluster: str, *, hosts: int, least: int | None, console: Console) -> None:
    """Trains a run, or resumes it, on nodes of a cluster, each with all of its cores.

    Args:
        task: the run; its folder is visible to all nodes under the same path, or it has a URL.
        cluster: address of the cluster.
        hosts: number of nodes.
        least: number of nodes that suffice if the others are missing; None for all.
        console: where to show the output of the run.

    Raises:
        UserError: there are too few nodes, another command trains the run, or it cannot be trained.
        LostHostError: nodes were lost several times before a checkpoint.
        StoppedError: a signal came, and the run is saved.
    """
    if task.url is None:
        # A node may have another working directory.
        task = task.model_copy(update={"folder": task.folder.absolute()})
    run, data_dir = task.place, task.data_dir and task.data_dir.expanduser().absolute()
    again = resuming(run, task.again)
    _check_batch_size(task, hosts, least or hosts)
    losses, saved = 0, saved_step(run)
    try:
        with (
            ExitStack() as locked,
            signals.raised(),
            ClusterExecutor(cluster, partial(say, console)) as executor,
        ):
            # After the connection, so that a wrong address leaves nothing behind, and until all processes have saved.
            log = locked.enter_context(_log(run))
            task, output = task.model_copy(update={"data_dir": data_dir, "log": log}), _Output(log)
            fewest = least or hosts
            while lost := _train(
                task,
                executor,
                _fitting(
                    _nodes(executor, hosts, fewest, RESETTLE if losses else SETTLE, console),
                    hosts,
                    fewest,
                    task,
                    console,
                ),
                console,
                output,
            ):
                # The end of an epoch is no progress, as the run goes back to its last checkpoint. Nor is a checkpoint
                # of a step that was saved before, for example because the disk damages all of them.
                before, saved = saved, max(saved, saved_step(run))
                losses = 1 if saved > before else losses + 1
                if losses == LOSSES:
                    reason = "" if lost == LOST else f" ({lost})"
                    raise LostHostError(
                        f"nodes of the cluster were lost {LOSSES} times in a row before a checkpoint{reason}. Repeat "
                        "the command once the nodes can reach each other and the cluster is stable, or resume the run "
                        f"if it has begun: {again}"
                    )
                say(
                    console,
                    f"a node or its process was lost after step {_step(task):,}; the run goes on from its last "
                    "checkpoint",
                )
                if (run / "run.json").exists():
                    task = task.model_copy(update={"config": None})
    except StoppedError as stopped:
        if not (run / "run.json").exists():
            raise StoppedError("stopped before the first step", stopped.number) from None
        raise StoppedError(f"stopped after step {_step(task):,}. Resume with: {again}", stopped.number) from None


@contextmanager
def _log(run: Location) -> Iterator[Location]:
    """Yields an empty file next to a run, for the output of the process that leads; removes it at the end.

    It also stands for the run, which may not exist yet, as a lock. In a bucket, where nothing is locked and the command
    that started last wins, each command has a file of its own.

    Raises:
        UserError: another command trains the run, or the folder cannot be created or written.
    """
    if isinstance(run, Url):
        log = run.with_name(f".{run.name}-{secrets.token_hex(4)}.log")
        log.write_bytes(b"")
        try:
            yield log
        finally:
            with suppress(UserError):
                log.unlink()
        return
    path = run.with_name(f".{run.name}.log")
    with file_lock(path, BUSY.format(run=run), create=True):
        # A command that was killed has left its output.
        path.write_bytes(b"")
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


class _Output:
    """The output of the process that leads, which it writes to a file that all nodes see.

    Args:
        log: the file.
    """

    def __init__(self, log: Location) -> None:
        self._log = log
        self._shown = 0
        self._again = 0.0

    def new(self, *, ended: bool) -> str:
        """Returns the lines that were added since the last call.

        Args:
            ended: whether the process has ended; before, a bucket is not asked more often than every `LOG_POLL` s.
        """
        if isinstance(self._log, Url) and not ended and time.monotonic() < self._again:
            return ""
        self._again = time.monotonic() + LOG_POLL
        rest = self._rest()
        added = rest if ended else rest[: rest.rfind(b"\n") + 1]
        self._shown += len(added)
        return added.decode(errors="replace")

    def _rest(self) -> bytes:
        if isinstance(self._log, Url):
            return self._log.read_bytes()[self._shown :]
        with self._log.open("rb") as file:
            file.seek(self._shown)
            return file.read()


def _nodes(executor: ClusterExecutor, hosts: int, least: int, patience: float, console: Console) -> dict[Node, str]:
    """Waits for nodes, and returns those to use, each with a free address.

    They are asked, because Ray lists a dead node for some seconds.

    Args:
        executor: the cluster.
        hosts: number of nodes to wait for.
        least: number of nodes that suffice.
        patience: seconds after which `least` nodes suffice; with fewer, `SETTLE` is waited.
        console: where to say that nodes are missing.
    """
    asked: dict[str, Node] = {}
    found: dict[Node, str] = {}
    started, reported = time.monotonic(), False
    while len(found) < hosts:
        waited, limit = time.monotonic() - started, SETTLE if len(found) < least else patience
        if waited >= limit:
            break
        if waited > NOTICE and not reported:
            say(console, f"{len(found)} of {hosts} nodes take tasks; waiting up to {limit:.0f} s for the others")
            reported = True
        for node in executor.nodes():
            if node.id not in asked:
                asked[node.id] = node
                executor.submit_to(node, node.id, node.address, free_address)
        for outcome in executor.finished(POLL):
            if outcome.error is None:
                found[asked[outcome.key]] = outcome.result
            elif not outcome.lost:
                raise UserError(outcome.failure())
    executor.cancel()
    if len(found) < least:
        # All of the cores are needed, so that a node on which another task has one does not answer either.
        busy = len({node.id for node in executor.nodes()} - {node.id for node in found})
        others, first = (f" (alive but busy: {busy})", "Wait for other tasks, start") if busy else ("", "Start")
        raise UserError(
            f"training needs {least} nodes, and the cluster has {len(found)} that take tasks{others}. {first} more of "
            "them, or lower --hosts or --min-hosts."
        )
    return dict(islice(found.items(), hosts))


def _check_batch_size(task: HostTask, hosts: int, least: int) -> None:
    """Refuses a batch size that no number of nodes can divide evenly, before the cluster is asked for any."""
    config, devices = task.config or _config(task), task.devices or 1
    if config and all(config.batch_size % config.divisor(count, devices) for count in range(least, hosts + 1)):
        check_batch_size(config, hosts, devices)


def _fitting(nodes: dict[Node, str], hosts: int, least: int, task: HostTask, console: Console) -> dict[Node, str]:
    """Returns the nodes to train on: as many of those that there are as can divide a batch evenly.

    If no number of nodes that are left can, all are returned, and their processes refuse the batch size.
    """
    config = task.config or _config(task)
    if config is None:
        return nodes
    counts = range(len(nodes), least - 1, -1)
    count = next((n for n in counts if config.batch_size % config.divisor(n, task.devices or 1) == 0), len(nodes))
    if count == hosts:
        return nodes
    rest = f", which divide a batch of {config.batch_size} evenly" if count < len(nodes) else ""
    say(console, f"{len(nodes)} of {hosts} nodes take tasks; the run is trained on {count}{rest}")
    return dict(islice(nodes.items(), count))


def _train(
    task: HostTask, executor: ClusterExecutor, nodes: Mapping[Node, str], console: Console, output: _Output
) -> str:
    """Trains a run on these nodes; returns how one of them was lost, or an empty string."""
    address = next(iter(nodes.values()))
    for index, node in enumerate(nodes):
        process = HostProcess(task, Hosts(address, len(nodes), index))
        executor.submit_to(node, str(index), process, train_as_host)
    running, trained, lost = len(nodes), False, LOST
    while running:
        for outcome in executor.finished(POLL):
            running -= 1
            if outcome.key == LEADER:
                trained = outcome.result == TRAINED
            if outcome.error and not outcome.lost:
                raise UserError(outcome.failure())
            if outcome.result not in (None, TRAINED, LOST):
                lost = outcome.result
                say(console, lost)
        console.out(output.new(ended=not running), end="")
    return "" if trained else lost


def _config(task: HostTask) -> Config | None:
    path = task.place / "config.json"
    with suppress(UserError):
        return read(path, Config) if path.exists() else None
    return None


def _step(task: HostTask) -> int:
    record = task.place / "run.json"
    with suppress(UserError):
        return read(record, Record).step if record.exists() else 0
    return 0


def free_address(host: str) -> str:
    """Returns HOST:PORT with a free port of this machine.

    Args:
        host: address of this machine.
    """
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{host}:{probe.getsockname()[1]}"


def train_as_host(process: HostProcess) -> str:
    """Trains a run along with the other processes.

    Returns:
        `TRAINED`; `LOST` if another process has died; or a sentence if this one was killed, or waited in vain.

    Raises:
        UserError: the run cannot be trained.
        SystemExit: a signal came, and the run is saved.
    """
    task, hosts = process.task, process.hosts
    assert task.log
    if not task.log.exists():
        raise UserError(
            f"{task.place.parent} on {socket.gethostname()} is missing, or is not the folder of the machine that runs "
            "the command. All nodes must see the run's folder."
        )
    os.environ.update({ADDRESSES: hosts.address, COUNT: str(hosts.count), INDEX: str(hosts.index)})
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), synced(task.log) if hosts.leads else nullcontext(task.log) as log:
            train_together(task.model_copy(update={"log": log}), hosts, Console(file=io.StringIO()))
    except LostHostError as error:
        return _loss(str(error), hosts)
    except SystemExit as end:
        text = errors.getvalue().strip().rpartition(": error: ")[2]
        if end.code == os.EX_TEMPFAIL:
            return _loss(text, hosts)
        if end.code in (129, 130, 143):
            raise
        if isinstance(end.code, int) and end.code - 128 in {*signal.Signals}:
            # For example by the system, which lacks memory. Another node, or a new process, may have enough.
            how = signal.Signals(end.code - 128).name
            return f"process {hosts.index} on {socket.gethostname()} was killed by {how}"
        raise UserError(text or f"a process ended with status {end.code}") from None
    return TRAINED


def _loss(error: str, hosts: Hosts) -> str:
    """Returns `LOST`, or how else others were lost: the error without advice on processes that are started by hand."""
    sentence = error.partition(". ")[0]
    return LOST if sentence in ("", DIED.format(count=hosts.count)) else sentence

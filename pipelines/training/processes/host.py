"""One of several processes that train a run together, as a child process.

When another process dies, JAX may abort this one before any Python code runs, and while it connects, no signal is
handled. The command that the user started therefore trains in a child, and reports its end in one sentence.
"""

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from rich.console import Console

from pipelines.core import environment, frameworks, signals
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import LostHostError, UserError, disk_is_full, reason
from pipelines.core.hosts import ADDRESSES, COUNT, Hosts, of_environment
from pipelines.core.ownership import claim, claimable
from pipelines.core.run import open_run
from pipelines.core.sync import renamed, synced
from pipelines.core.url import Location, Url
from pipelines.training.processes.task import Task, perform
from pipelines.training.train import resume, train

NOTICE, LIMIT = 20.0, 300.0
"""Seconds of waiting for the other processes after which this one reports it, and after which it gives up."""
POLL = 0.05
"""Seconds to wait in a system call, which Ray cannot interrupt when it interrupts a task."""
CHILD = (sys.executable, "-m", f"{__package__}.host")
CONNECTED = b"+"
"""Message of a child to its parent: all processes are connected."""
CLAIM, CLAIMED = b"!", b"+"
"""Message of a child to its parent: claim the run, whose checks have passed; and its answer."""
DIED = "one of the {count} processes has died or cannot be reached"
"""Message of a process that has lost another one."""
# Lines of the C++ log: level, date and time.
LOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ ")
# Lines with which a process ends; all lines after them belong to them.
FATAL = re.compile(r"F\d{4} |E\d{4} .*coordination")
# The line with which JAX ends a process because another one is gone.
GONE = re.compile(r"[EF]\d{4} .*(distributed service|coordination|heartbeat)", re.IGNORECASE)


class _MissingHostError(LostHostError):
    """Another process has not come in time."""


class HostTask(Task):
    """Trains a run along with other processes; the folder is its run directory, which only the leading one has."""

    module: ClassVar[str] = f"{__package__}.host"
    program: ClassVar[str] = "highway train"
    role: Literal["host"] = "host"
    config: Config | None
    """Configuration of a new run; None resumes one."""
    interval: int | Literal["auto"] = "auto"
    """Steps between two checkpoints."""
    track: Literal["mlflow", "wandb"] | None = None
    """Experiment tracker to report to."""
    devices: int | None = None
    """Number of devices of this process."""
    again: tuple[str, ...] = ()
    """Further options of the command that resumes the run, for messages."""
    ready: int = -1
    """Descriptor for messages to the parent, the first once all processes are connected."""
    answers: int = -1
    """Descriptor for its answers."""
    log: Location | None = None
    """File to which the output is appended; None for standard output."""


def act(task: HostTask) -> None:
    """Trains the run of a task, and writes it if this process leads.

    Raises:
        LostHostError: another process has died or cannot be reached.
        UserError: the run cannot be trained.
        StoppedError: after SIGTERM or SIGINT in any of the processes.
    """
    # Without the variables, this process trains alone, as when one node of a cluster is left.
    hosts, devices = of_environment(), task.devices or 1
    leads = hosts is None or hosts.leads
    if isinstance(task.log, Path) and leads:
        with task.log.open("ab") as log:
            os.dup2(log.fileno(), 1)
    # If a CPU is divided, all of its parts are used.
    os.environ["JAX_NUM_CPU_DEVICES"] = str(devices)
    console = Console(quiet=not leads)
    frameworks.load(devices, console)
    from pipelines.training import launch
    from pipelines.training.exchange import connect, is_lost

    try:
        exchange = connect(hosts, devices) if hosts else None
    except RuntimeError as error:
        if not is_lost(error):
            raise
        raise LostHostError(
            f"the processes cannot connect to each other: {reason(error)}. The host name of each machine must resolve "
            "to an address that the others can reach."
        ) from error
    os.write(task.ready, CONNECTED)
    options: dict[str, Any] = {
        "console": console,
        "devices": task.devices,
        "exchange": exchange,
        "again": task.again,
    }
    leading = {"data_dir": task.data_dir, "interval": task.interval, "track": task.track, **options}

    def ask_to_claim() -> None:
        os.write(task.ready, CLAIM)
        # If the parent cannot, it ends this process.
        os.read(task.answers, len(CLAIMED))

    try:
        with (
            renamed(task.folder, Url(task.url)) if task.url else nullcontext(),
            claimable(task.folder, ask_to_claim),
        ):
            if not leads:
                launch.follow(task.config, task.folder, launch.Options(task.data_dir, **options))
            elif task.config is not None:
                train(task.config, task.folder, **leading)
            else:
                resume(task.folder, **leading)
    except Exception as error:
        if isinstance(error, UserError) or disk_is_full(error):
            raise
        if hosts and is_lost(error):
            raise _lost(task, hosts) from error
        # An interpreter that shuts down would wait for the other processes, which wait for this one.
        traceback.print_exc()
        os._exit(1)


def train_together(task: HostTask, hosts: Hosts, console: Console) -> None:
    """Trains a run along with other processes, in a child process; uploads it if it has a URL and this process leads.

    Args:
        task: the run.
        hosts: the processes.
        console: where to report that processes are missing.

    Raises:
        LostHostError: another process has died, or is missing before the last step.
        SystemExit: the child has reported an error, was stopped or was killed; the status is passed on.
        UserError: the run could not be downloaded or uploaded.
    """
    with synced(task.place, owned=True) if hosts.leads else nullcontext(task.folder) as folder:
        task = task.model_copy(update={"folder": folder})
        try:
            _train_in_child(task, hosts, console)
        except _MissingHostError:
            if not (hosts.leads and _has_trained(folder)):
                raise
            # After the last step, the others have ended with status 0, and nothing starts them again.
            say(console, "all steps are done: process 0 finishes the run without the others")
            _train_in_child(task, replace(hosts, count=1), console)


def _has_trained(folder: Path) -> bool:
    """Returns whether all steps of a run are done, though its net, figures or report may be missing."""
    with suppress(UserError):
        run = open_run(folder)
        record = run.record
        # Earlier versions recorded no more than the number of steps.
        all_steps = record.step == run.config.epochs * record.steps_per_epoch
        return record.trained or all_steps or record.state == "finished"
    return False


def _train_in_child(task: HostTask, hosts: Hosts, console: Console) -> None:
    read, write = os.pipe()
    answers, answer = os.pipe()
    withheld: list[str] = []
    received: list[signal.Signals] = []
    connected = False
    variables = {ADDRESSES: hosts.address, COUNT: str(hosts.count), environment.COMMAND: environment.command()}

    def pass_on(number: signal.Signals) -> None:
        child.send_signal(number)
        if received or not connected:
            child.kill()
        received.append(number)

    with subprocess.Popen(
        [*CHILD, task.model_copy(update={"ready": write, "answers": answers}).model_dump_json()],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[write, answers],
        # Ctrl-C must reach it once, from this process.
        start_new_session=True,
    ) as child:
        os.close(write)
        os.close(answers)
        relay = threading.Thread(target=_relay, args=(child.stderr, task.program, withheld), name="stderr")
        relay.start()
        try:
            with signals.handled(pass_on):
                connected = hosts.count == 1 or _connects(read, hosts, console)
                while (status := child.poll()) is None:
                    if _is_readable(read, POLL) and os.read(read, 1) == CLAIM:
                        claim(task.folder)
                        os.write(answer, CLAIMED)
        finally:
            child.kill()
            relay.join()
            os.close(read)
            os.close(answer)
    if status == 0:
        return
    if received and status < 0:
        raise SystemExit(128 + received[0])
    if status in (1, -signal.SIGABRT) and any(map(GONE.match, withheld)):
        raise _lost(task, hosts)
    if status < 0 or status == 1:
        sys.stderr.writelines(withheld)
    if status < 0:
        how = signal.Signals(-status).name
        sys.stderr.write(f"{task.program}: error: process {hosts.index} was killed by {how}. {_again(task)}\n")
    raise SystemExit(status if status > 0 else 128 - status)


def _connects(ready: int, hosts: Hosts, console: Console) -> bool:
    """Waits until all processes are connected; returns False if the child ends first."""
    of = f"process {hosts.index} of {hosts.count}"
    if not _is_readable(ready, NOTICE):
        say(
            console,
            f"{of} waits for the others at {hosts.address}. All of them need the same {ADDRESSES}, and must reach it "
            "without a proxy.",
        )
        if not _is_readable(ready, LIMIT - NOTICE):
            raise _MissingHostError(
                f"{of} has waited {LIMIT:.0f} s for the others at {hosts.address}. Start all of them."
            )
    return os.read(ready, 1) == CONNECTED


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Waits until a descriptor is readable; returns False if it takes longer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([descriptor], [], [], POLL)[0]:
            return True
    return False


def _relay(stream: IO[bytes], program: str, withheld: list[str]) -> None:
    """Passes the errors of a child on, except for lines of the C++ log, and all but its own after a fatal one."""
    fatal = False
    for line in stream:
        text = line.decode(errors="replace")
        fatal = fatal or bool(FATAL.match(text))
        if LOG.match(text) or (fatal and not text.startswith(program)):
            withheld.append(text)
            continue
        # The terminal may be closed.
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _lost(task: HostTask, hosts: Hosts) -> LostHostError:
    return LostHostError(f"{DIED.format(count=hosts.count)}. {_again(task)}")


def _again(task: HostTask) -> str:
    if task.folder.exists():
        options = shlex.join(["--resume", str(task.folder), *task.again])
        return f"Start all of them again with {options}; the run continues from its last checkpoint."
    return "Start all of them again, with --resume if there is a run directory."


if __name__ == "__main__":
    perform(HostTask, act)

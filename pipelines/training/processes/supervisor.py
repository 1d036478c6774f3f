"""Supervises processes on this machine: starts them and restarts those that die."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.core import environment
from pipelines.core.errors import StoppedError, UserError
from pipelines.training.processes.task import AGAIN, LIMIT, Task

QUICK = 60.0
"""Seconds after its start within which a death counts as quick: the process may never have worked."""
DEATHS = 5
"""Quick deaths in a row after which a process is not restarted."""
GRACE = 10.0
"""Seconds between asking a process to end and killing it after an error."""
TAIL = 1000
"""Characters at the end of a log that an error quotes."""


@dataclass
class Member:
    """A supervised process.

    Args:
        name: its name in messages.
        task: its task.
        environment: environment variables in addition to those of this process.
        log: file for its output.
    """

    name: str
    task: Task
    environment: Mapping[str, str]
    log: Path
    # File descriptors that the process inherits.
    descriptors: tuple[int, ...] = field(default=(), init=False)
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    started: float = field(default=0.0, init=False)
    deaths: int = field(default=0, init=False)
    offset: int = field(default=0, init=False)
    temporary: "tempfile.TemporaryDirectory[str] | None" = field(default=None, init=False)

    def start(self) -> None:
        """Starts or restarts the process, which ends when this one does."""
        self.forget()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # A killed process leaves temporary files behind, such as those that TensorFlow generates from Python functions.
        self.temporary = tempfile.TemporaryDirectory(prefix="highway-", ignore_cleanup_errors=True)
        own = {environment.COMMAND: environment.command(), "TMPDIR": self.temporary.name}
        with self.log.open("ab") as log:
            self.offset = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.task.module, self.task.model_dump_json()],
                env={**os.environ, **own, **self.environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=self.descriptors,
                # Ctrl-C must reach only the process that the user started. Not a session of its own: Linux shares the
                # processor among sessions first, so `nice highway reproduce` would not make way for other work.
                process_group=0,
            )
        self.started = time.monotonic()

    @property
    def done(self) -> bool:
        """True if the process has ended successfully."""
        return self.process is not None and self.process.poll() == 0

    def forget(self) -> None:
        """Releases an ended process and its temporary files."""
        if self.process and self.process.stdin:
            self.process.stdin.close()
        if self.temporary:
            self.temporary.cleanup()

    def tail(self) -> str:
        """Returns the end of the output since the last start."""
        with self.log.open("rb") as log:
            log.seek(self.offset)
            return log.read().decode(errors="replace").strip()[-TAIL:]


class DiedError(UserError):
    """A process keeps dying; its output is in its log."""


class Supervisor:
    """Runs the processes of a command on this machine.

    Args:
        members: the processes, in the order of their start.
        say: prints a line when a process has died.
        then: processes in waiting; each takes over the place and the cores of the next member that is done.
    """

    def __init__(self, members: Sequence[Member], say: Callable[[str], None], then: Sequence[Member] = ()) -> None:
        self.members = list(members)
        self.say = say
        self.then = list(then)

    def __enter__(self) -> "Supervisor":
        try:
            for member in self.members:
                member.start()
        except BaseException as error:
            # A signal that comes now must end the processes started so far.
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, StoppedError):
            self.say(f"{error.number.name}: every process saves and ends; a second signal ends at once")
        for member in self.members:
            if member.process and member.process.poll() is None:
                member.process.terminate()
        # A command that is stopped, also by its deadline, waits until all have saved, however long a step takes, as a
        # single run does.
        until = None if error is None or isinstance(error, StoppedError) else time.monotonic() + GRACE
        for member in self.members:
            if member.process:
                try:
                    member.process.wait(None if until is None else max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    member.process.kill()
                    member.process.wait()
                member.forget()

    def works(self) -> bool:
        """Restarts processes that died and returns whether any work is left.

        Raises:
            UserError: a process reports a user error, or keeps dying.
        """
        # Each process is asked once: one that ends during this loop counts as working, and the next call sees its end.
        working = False
        for place, member in enumerate(self.members):
            status = member.process.poll() if member.process else 0
            if status == 0 and member.process and self.then:
                self.members[place] = self._follow(member)
                working = True
                continue
            if status is None or status == 0:
                working = working or status is None
                continue
            if status == 2:
                output = member.tail()
                raise UserError(output.rpartition(": error: ")[2] or output)
            if status != AGAIN:
                self._died(member, status)
            member.start()
            working = True
        return working

    def _follow(self, member: Member) -> Member:
        member.forget()
        follower = self.then.pop(0)
        follower.task = follower.task.model_copy(update={"cores": member.task.cores})
        follower.start()
        return follower

    def _died(self, member: Member, status: int) -> None:
        quick = time.monotonic() - member.started < QUICK
        member.deaths = member.deaths + 1 if quick else 1
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        if status == -signal.SIGALRM:
            how = f"hung: no step ended for {LIMIT / 60:.0f} minutes"
        if member.deaths == DEATHS:
            raise DiedError(
                f"{member.name} died {DEATHS} times in a row within {QUICK:.0f} s of its start ({how}). The end of "
                f"{member.log}:\n{member.tail() or '(no output)'}"
            )
        self.say(f"{member.name} died ({how}) and is restarted; its output is in {member.log}")


def shares(cores: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Assigns cores to workers: equal parts, or one each in turn if workers outnumber cores.

    Example:
        shares([0, 1, 2, 3], 2)  # [(0, 1), (2, 3)]
    """
    if not 0 < workers < len(cores):
        return [(cores[number % len(cores)],) for number in range(workers)]
    size = len(cores) // workers
    return [tuple(cores[number * size : (number + 1) * size]) for number in range(workers)]

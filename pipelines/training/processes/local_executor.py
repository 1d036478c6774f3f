"""Runs tasks in processes of this machine, each on its share of the cores; they are restarted when they die."""

import sys
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pipelines.core import environment, frameworks
from pipelines.core.executor import ATTEMPTS, FRESH, Given, Outcome, attempt
from pipelines.training.processes.supervisor import Member, Supervisor, shares
from pipelines.training.processes.task import AGAIN, Task, perform

Submission = tuple[str, Any, Callable[[Any], Any]]
"""Key, task and function; see `Executor.submit`."""


class WorkerTask(Task):
    """Runs the tasks that the parent sends; the folder is that of their command."""

    module: ClassVar[str] = f"{__package__}.local_executor"
    program: ClassVar[str] = "highway"
    role: Literal["worker"] = "worker"
    channel: int = -1
    """Descriptor of the connection to the parent."""
    trains: bool = True
    """Whether the process loads Keras and its backend at start-up."""


def act(task: WorkerTask) -> None:
    """Runs tasks until the parent closes the connection, and sends it their outcomes.

    Raises:
        UserError: the disk is full.
        StoppedError: a signal ended a task.
    """
    if task.trains:
        # This takes seconds, in which the parent prepares the first task.
        frameworks.load()
    with Connection(task.channel) as parent:
        # Says that the process is ready.
        parent.send(None)
        while True:
            try:
                submission = parent.recv()
            except EOFError:
                sys.exit(AGAIN)
            parent.send(attempt(*submission))


@dataclass
class Worker(Member):
    """A process that runs one task after another.

    Args:
        fresh: tasks after which the process is replaced; 0 for never.
    """

    fresh: int = FRESH
    connection: Connection | None = field(default=None, init=False)
    ready: bool = field(default=False, init=False)
    """True once it can take a task."""
    submission: Submission | None = field(default=None, init=False)
    """The task that it runs."""
    lost: Submission | None = field(default=None, init=False)
    """The task that it ran when it died or was replaced."""
    failure: str | None = field(default=None, init=False)
    """The error of that task, if the process did not die but is replaced for another attempt."""
    ended: int = field(default=0, init=False)
    """Number of tasks that have ended in this process."""

    def start(self) -> None:
        """Starts or restarts the process, with a new connection."""
        self.ready, self.lost, self.submission, self.ended = False, self.submission, None, 0
        self.connection, theirs = Pipe()
        with theirs:
            self.task = self.task.model_copy(update={"channel": theirs.fileno()})
            self.descriptors = (theirs.fileno(),)
            super().start()

    def send(self, submission: Submission) -> None:
        """Gives the process a task."""
        self.submission = submission
        # A process that has just died loses the task.
        with suppress(OSError):
            assert self.connection
            self.connection.send(submission)

    def receive(self) -> Outcome | None:
        """Returns the outcome of its task; None if it has become ready, or ends, also for another attempt."""
        assert self.connection
        outcome: Outcome | None
        try:
            outcome = self.connection.recv()
        except (EOFError, OSError):
            self._disconnect()
            return None
        if outcome and outcome.lost:
            # The next process starts with the task as if this one had died.
            self.failure = outcome.error
            self._disconnect()
            return None
        self.ready = True
        if outcome:
            self.submission = None
            self.ended += 1
            if self.ended == self.fresh:
                self._disconnect()
        return outcome

    def _disconnect(self) -> None:
        """Closes the connection, at which the process ends to be restarted."""
        assert self.connection
        self.connection.close()
        self.connection, self.ready = None, False


class LocalExecutor:
    """Runs tasks in processes of this machine; see `pipelines.core.executor.Executor`.

    Only processes that have started count as capacity.

    Args:
        folder: folder of the command, for the logs of the processes.
        workers: number of processes; each gets its share of the cores.
        say: prints a line when a process has died.
        trains: whether tasks use the frameworks. Other processes start without them and are never replaced, because
            nothing stays in their memory.

    Example:
        with LocalExecutor(Path("searches/demo"), 2, print) as executor:
            ...
    """

    def __init__(self, folder: Path, workers: int, say: Callable[[str], None], trains: bool = True) -> None:
        self._workers: list[Worker] = []
        for number, cores in enumerate(shares(environment.available(), workers)):
            name, task = f"worker-{number}", WorkerTask(folder=folder, data_dir=None, cores=cores, trains=trains)
            log = folder / "logs" / f"{name}.log"
            self._workers.append(Worker(name, task, {}, log, fresh=FRESH if trains else 0))
        self._supervisor = Supervisor(self._workers, say)
        self._waiting: deque[Submission] = deque()
        self._losses: Counter[str] = Counter()
        # Whether a task has ended: processes that die afterwards do so because of their tasks.
        self._proven = False

    def __enter__(self) -> Self:
        self._supervisor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._supervisor.__exit__(*error)

    def capacity(self) -> int:
        """See `Executor`."""
        return sum(worker.ready for worker in self._workers)

    def submit(self, key: str, task: Given, function: Callable[[Given], Any]) -> None:
        """See `Executor`."""
        self._waiting.append((key, task, function))
        self._assign()

    def finished(self, timeout: float) -> list[Outcome]:
        """See `Executor`; also restarts processes that have died.

        Raises:
            UserError: a process reports a user error, or keeps dying.
        """
        self._supervisor.works()
        outcomes = self._given_up()
        connected = {connection: worker for worker in self._workers if (connection := worker.connection)}
        readable = wait([*connected], 0 if outcomes else timeout)
        for connection, worker in connected.items():
            if connection in readable and (outcome := worker.receive()):
                outcomes.append(outcome)
                worker.deaths, self._proven = 0, True
        self._assign()
        return outcomes

    def _assign(self) -> None:
        for worker in self._workers:
            if self._waiting and worker.ready and not worker.submission:
                worker.send(self._waiting.popleft())

    def _given_up(self) -> list[Outcome]:
        """Queues the tasks of processes that have died or were replaced, and returns those with too many attempts."""
        outcomes = []
        for worker in self._workers:
            if not worker.lost:
                continue
            key = worker.lost[0]
            self._losses[key] += 1
            if self._losses[key] < ATTEMPTS:
                self._waiting.appendleft(worker.lost)
                if worker.failure:
                    self._supervisor.say(f"{key} has failed and starts again in a fresh process: {worker.failure}")
            else:
                reason = worker.failure or f"each of {ATTEMPTS} workers that ran it died or hung"
                outcomes.append(Outcome(key, error=reason, lost=True))
                worker.deaths = 0 if self._proven else worker.deaths
            worker.lost = worker.failure = None
        return outcomes


if __name__ == "__main__":
    perform(WorkerTask, act)

"""The interface of executors, which run tasks in processes of this machine or of a cluster. Imports neither kind.

The trials of a search, the runs of a study and the parts of a bulk prediction are such tasks: seconds to hours long,
independent of each other, and able to start again.
"""

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from pipelines.core.errors import UserError, disk_is_full

ATTEMPTS = 3
"""Processes that a task must lose, one after the other, to count as failed."""
FRESH = 16
"""Tasks after which a process is replaced, because frameworks keep the memory of programs that they compiled."""

Given = TypeVar("Given")


class JobError(UserError):
    """An error that every other task would hit too, such as missing data; it ends all tasks."""


class AttemptError(Exception):
    """A task has failed, but the process or the machine may be the reason, so that another attempt may succeed."""


@dataclass(frozen=True)
class Outcome:
    """The end of a task.

    Args:
        key: the key that it was submitted with.
        result: what its function returned; None if it failed.
        error: why it failed: the message of a `UserError` or of the last `AttemptError`, the stack trace of another
            exception, or a sentence about the processes that it lost. None if it did not fail.
        lost: whether it failed because it lost its processes, or by an `AttemptError`.
        node: host name of the node of a cluster that performed it.
    """

    key: str
    result: Any = None
    error: str | None = None
    lost: bool = False
    node: str | None = None

    def failure(self) -> str | None:
        """Returns the error with the name of the node, whose data, disk or credentials may be the reason."""
        return self.error if self.error is None or self.node is None else on_node(self.error, self.node)


def on_node(error: str, node: str) -> str:
    """Returns an error with the name of the node on which it occurred, unless it has it already."""
    if re.search(rf" on (the node )?{re.escape(node)}\b", error):
        return error
    # A stack trace ends with the line of its exception.
    space = "\n" if "\n" in error else " "
    return f"{error.rstrip()}{space}This was on the node {node}."


class Executor(Protocol):
    """Runs tasks, each in a process with its own cores.

    A task is run again if its process or its machine dies, or if its function raises an `AttemptError`, up to
    `ATTEMPTS` times. Any other exception in the function ends it at once. The end of the `with` block ends the tasks
    that still run.

    Example:
        waiting = [*parts]
        with executor:
            running = 0
            while waiting or running:
                capacity = executor.capacity()
                while waiting and running < capacity:
                    part = waiting.pop(0)
                    executor.submit(part.name, part, predict_part)
                    running += 1
                for outcome in executor.finished(timeout=1.0):
                    running -= 1
                    print(outcome.key, outcome.error or outcome.result)
    """

    def __enter__(self) -> Self:
        """Connects to the machines, or starts processes."""

    def __exit__(self, *_: object) -> None:
        """Ends all tasks and processes."""

    def capacity(self) -> int:
        """Returns the number of tasks that can run at the same time; it changes as machines come and go.

        To be called while tasks run, too: nothing else notices that no machine is left.

        Raises:
            UserError: no machine is left.
        """

    def submit(self, key: str, task: Given, function: Callable[[Given], Any]) -> None:
        """Starts a task as soon as there is room for it.

        Args:
            key: its name, which no unfinished task has.
            task: the argument of the function; it is pickled.
            function: a function at the top level of a module; its result is pickled.
        """

    def finished(self, timeout: float) -> list[Outcome]:
        """Returns the tasks that have ended since the last call, each once.

        Args:
            timeout: seconds to wait for the first one.

        Raises:
            UserError: no task can continue, because of a `JobError`, a full disk, or a machine with another version of
                the program.
        """


def attempt(key: str, task: Given, function: Callable[[Given], Any]) -> Outcome:
    """Runs a task in this process, which belongs to an executor.

    Args:
        key: the key of the task.
        task: the argument of the function.
        function: see `Executor.submit`.

    Returns:
        Its outcome, also if it failed.

    Raises:
        UserError: a `JobError`, or the disk is full; both end all tasks.
        StoppedError: a signal ended the task, which another process may take over.
    """
    try:
        return Outcome(key, function(task))
    except JobError:
        raise
    except UserError as error:
        return Outcome(key, error=str(error))
    except AttemptError as error:
        return Outcome(key, error=str(error), lost=True)
    except Exception as error:
        if full := disk_is_full(error):
            raise UserError(f"the disk is full ({full}). Free some space, and repeat the command.") from error
        return Outcome(key, error=traceback.format_exc())

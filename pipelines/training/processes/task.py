"""The life cycle of a supervised process: its task as one JSON argument, its start, its watchdog and its end."""

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import ClassVar, NoReturn, TypeVar

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.executor import JobError
from pipelines.core.frozen import Frozen
from pipelines.core.guard import guarded
from pipelines.core.ownership import claim
from pipelines.core.signals import SIGNALS
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url

AGAIN = 75
"""Exit status of a process that asks to be restarted, with fresh memory or with other work."""
LIMIT = 30 * 60.0
"""Time limit in seconds for an execution of training or validation. Compiling a deep net takes many minutes."""


class Task(Frozen):
    """Base class of tasks; each kind of work has its own."""

    module: ClassVar[str]
    """The module that performs the task when run as a program."""
    program: ClassVar[str]
    """The command that starts the process, for messages."""
    role: str
    """Kind of the process, among those of its command."""
    folder: Path
    """The folder to work on."""
    data_dir: Path | None
    """Folder of prepared data; None for the TFDS default."""
    cores: tuple[int, ...] = ()
    """The cores to use; none for all."""
    url: str | None = None
    """URL of the folder, which is then uploaded from a copy on the machine that works on it; None for a folder that all
    machines share."""

    @property
    def place(self) -> Location:
        """The folder, or its URL."""
        return Url(self.url) if self.url else self.folder


Work = TypeVar("Work", bound=Task)


def perform(kind: type[Work], act: Callable[[Work], None]) -> NoReturn:
    """Performs the task on the command line of this process, then ends the process.

    The exit status is 0 once the task is done, 2 for a user error, or `AGAIN`.

    Args:
        kind: the kind of task.
        act: performs the task.
    """
    task = kind.model_validate_json(sys.argv[1])
    # Ray blocks Ctrl-C in its processes, and children inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if task.cores and hasattr(os, "sched_setaffinity"):
        # This must come before a framework counts the cores and starts its threads.
        os.sched_setaffinity(0, task.cores)
    try:
        status = guarded(task.program, lambda: act(task))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of gRPC and TensorFlow would keep the process alive.
    os._exit(status)


@contextmanager
def watchdog(limit: float = LIMIT) -> Iterator[Callable[[], None]]:
    """Ends the process by SIGALRM if it hangs inside a framework, where no Python thread may ever run again.

    The stack of every thread is written to stderr first.

    It starts with the first reset, so that preparing the data may take any time.

    Args:
        limit: seconds without a reset after which the process ends.

    Yields:
        A function that starts and resets the watchdog, to be called in the main thread.

    Example:
        with watchdog() as reset:
            reset()
            for batch in batches:
                step(batch)
                reset()
    """

    def reset() -> None:
        signal.setitimer(signal.ITIMER_REAL, limit)

    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
    try:
        yield reset
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)


@contextmanager
def run_of_task(place: Location, plan: str) -> Iterator[Path]:
    """Loads the frameworks for the run of one of many tasks of a process; at the end, frees what they keep for it.

    Args:
        place: the run directory, two levels below the folder of the command, in which all machines write; or its URL.
        plan: name of the file with the plan of the command.

    Yields:
        The run directory, or a copy of the one at the URL; see `pipelines.core.sync.synced`.

    Raises:
        JobError: this machine lacks the folder of the command, or cannot use the store.

    Example:
        with run_of_task(Path("/shared/searches/demo/trials/0"), SEARCH_FILE.name) as run:
            train(config, run)
    """
    shared = place.parent.parent
    if isinstance(shared, Path) and not (shared / plan).exists():
        raise JobError(
            f"there is no folder {shared}, in which all machines write. Share it among them, or give a URL in its "
            "place."
        )
    frameworks.load()
    import keras

    failure: UserError | None = None
    try:
        with synced(place, owned=True) as folder:
            # At once: the command has chosen this machine, in place of one that it has lost.
            claim(folder)
            try:
                yield folder
            except UserError as error:
                failure = error
                raise
    except UserError as error:
        if error is failure:
            raise
        # This machine could not download or upload any other run either.
        raise JobError(str(error)) from error
    finally:
        keras.utils.clear_session()
        gc.collect()


def _end_with_parent() -> None:
    # The other end of the pipe closes when the parent ends, even if it is killed.
    sys.stdin.buffer.read()
    os._exit(1)

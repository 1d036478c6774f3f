"""Worker processes that share one listening socket."""

import logging
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from serving.endpoint.options import EndpointError
from serving.engine.crashes import Crashes
from serving.engine.readiness import Readiness

# Minimum seconds between two starts of the same worker.
PAUSE = 1.0
# Start of the names of folders with metrics, and end of the names of Prometheus's files in them.
_METRICS, _METRICS_FILE = "highway-workers-", ".db"
_STOP = (signal.SIGTERM, signal.SIGINT)
_HANDLED = (*_STOP, signal.SIGCHLD)
log = logging.getLogger(__name__)


def supervise(
    work: Callable[[], object], count: int, crashes: Crashes, readiness: Readiness, listening: socket.socket
) -> int:
    """Runs a function in several processes and replaces those that end, until SIGTERM or SIGINT.

    The processes are forked, so this one should have no threads and no large imports yet. They get every SIGTERM and
    SIGINT that this process gets, and end with it, even if it is killed. Call it within `metrics_folder`.

    Args:
        work: ends gracefully on SIGTERM and SIGINT.
        count: number of processes.
        crashes: records what a crashed worker was predicting with.
        readiness: records which workers can answer.
        listening: the socket that the workers share; this process closes its own copy at the first signal.

    Returns:
        Exit status: 0 if all processes ended without an error after the signal.
    """
    return _WorkerSupervisor(work, crashes, readiness, listening).run(count)


@contextmanager
def metrics_folder() -> Iterator[None]:
    """Makes a folder for the metrics that workers share, and sets `PROMETHEUS_MULTIPROC_DIR` to it.

    Removes those of endpoints that were killed: the others have locked theirs.

    Raises:
        EndpointError: it cannot be made.

    Example:
        with metrics_folder():
            print(os.environ["PROMETHEUS_MULTIPROC_DIR"])
    """
    try:
        aside = Path(tempfile.mkdtemp(prefix=".highway-"))
    except OSError as error:
        raise EndpointError(
            f"--workers needs a temporary folder for metrics, which cannot be made: {error.strerror}. Set TMPDIR to a "
            "folder that can be written to."
        ) from error
    root = aside.parent
    for left in root.glob(f"{_METRICS}*"):
        with suppress(OSError), _locked(left):
            # A user may have a folder of such a name, too.
            if all(one.suffix == _METRICS_FILE and one.is_file() for one in left.iterdir()):
                shutil.rmtree(left)
    # Renamed once it is locked: until then, another endpoint would take it for that of a killed one.
    with ExitStack() as lock:
        # Without locks, the folder stays if this endpoint is killed.
        with suppress(OSError):
            lock.enter_context(_locked(aside))
        folder = aside.rename(root / f"{_METRICS}{aside.name.removeprefix('.highway-')}")
        try:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            yield
        finally:
            os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder for this process and those that it forks; raises OSError if others have locked it."""
    # Imported here: systems without fork lack it.
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


class _WorkerSupervisor:
    def __init__(
        self, work: Callable[[], object], crashes: Crashes, readiness: Readiness, listening: socket.socket
    ) -> None:
        self._work, self._crashes, self._readiness, self._listening = work, crashes, readiness, listening
        # Number and start time of the worker, by process ID.
        self._started: dict[int, tuple[int, float]] = {}
        # Signals are read from a pipe. The workers read from another, which closes when this process is gone.
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        self._lifeline, self._alive = os.pipe()
        for number in _HANDLED:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self, count: int) -> int:
        # Time of the next start, by worker.
        due = dict.fromkeys(range(count), 0.0)
        while True:
            self._start_due(due)
            wait = max(min(due.values()) - time.monotonic(), 0.0) if due else None
            ready, _, _ = select.select([self._signals], [], [], wait)
            numbers = os.read(self._signals, 4096) if ready else b""
            if any(number in numbers for number in _STOP):
                return self._stop(numbers)
            for pid, worker, started, status in self._reap():
                predicting = self._crashes.collect(worker, status)
                log.error("worker ended", extra={"pid": pid, "status": status, "predicting": predicting})
                due[worker] = started + PAUSE

    def _start_due(self, due: dict[int, float]) -> None:
        now = time.monotonic()
        for worker in [one for one, at in due.items() if at <= now]:
            try:
                self._started[self._fork(worker)] = worker, now
            except OSError as error:
                # The system is short of memory or processes; the other workers go on.
                log.error("worker not started", extra={"worker": worker, "why": error.strerror})
                due[worker] = now + PAUSE
            else:
                del due[worker]

    def _fork(self, worker: int) -> int:
        # A signal between the fork and the reset of the handlers would be lost, or reported to the wrong process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                _run(partial(self._begin, worker))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        return pid

    def _begin(self, worker: int) -> None:
        """Makes this process, which has just been forked, a worker, and runs its work."""
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        # Out of the terminal's foreground group: Ctrl-C goes to the supervisor, which asks the workers to stop.
        os.setpgid(0, 0)
        os.close(self._alive)
        self._crashes.enter(worker)
        self._readiness.enter(worker)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        _name_metrics(worker)
        threading.Thread(target=_end_with, args=(self._lifeline,), daemon=True).start()
        self._work()

    def _reap(self) -> list[tuple[int, int, float, int]]:
        """Removes the workers that have ended, and returns the process ID, number, start time and status of each."""
        ended = []
        for pid in list(self._started):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                worker, started = self._started.pop(pid)
                self._readiness.leave(worker)
                ended.append((pid, worker, started, os.waitstatus_to_exitcode(status)))
                from prometheus_client import multiprocess

                multiprocess.mark_process_dead(worker)
        return ended

    def _stop(self, numbers: bytes) -> int:
        """Passes on the signals to stop, and all later ones, until every worker has ended."""
        # The workers close theirs once they have drained, but the port is open as long as any process listens.
        self._listening.close()
        statuses: set[int] = set()
        while True:
            for number in (one for one in numbers if one in _STOP):
                for pid in self._started:
                    os.kill(pid, number)
            statuses |= {status for *_, status in self._reap()}
            if not self._started:
                # A worker that is still starting has no handlers for the signals, and a graceful stop by SIGINT ends
                # with that signal.
                return int(not statuses <= {0, *(-number for number in _STOP)})
            numbers = os.read(self._signals, 4096)


def _name_metrics(worker: int) -> None:
    """Names the files of metrics by worker: otherwise, each replacement would add files, and every scrape reads all."""
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(lambda: worker)


def _end_with(lifeline: int) -> None:
    # Nobody writes to the pipe: this returns once the supervisor is gone.
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _run(work: Callable[[], object]) -> None:
    """Runs a worker and ends the process without unwinding the supervisor's stack."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

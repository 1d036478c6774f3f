"""Keeps the copy of a repository in a bucket up to date, in the background."""

import threading
from contextlib import suppress
from pathlib import Path

from serving import bucket
from serving.engine.processes import NICE, ChildProcesses, EndedError

# Seconds between two checks of a bucket, each of which is a request that is billed: 8,640 a day.
INTERVAL = 10.0
# Held by the process that checks the bucket, in the folder of the copy.
_LOCK = ".lock"


class Mirror:
    """A thread that checks a bucket, in a child process: packages for buckets are large, and listings hold the GIL.

    Of all processes that serve the same copy, one checks the bucket, and the others read its report. If it ends,
    another takes over.

    Args:
        url: URL of the repository.
        folder: its copy.

    Example:
        mirror = Mirror("s3://bucket/models", Path("copy"))
        assert not mirror.report().complete
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._children = ChildProcesses(nice=NICE)
        self._stop = threading.Event()
        # The last report of this process, if it is the one that checks the bucket.
        self._found: bucket.Report | None = None

    def start(self) -> None:
        """Starts the checks."""
        threading.Thread(target=self._run, name="mirror", daemon=True).start()

    def report(self) -> bucket.Report:
        """Returns the report of the last check, whichever process made it."""
        return self._found or bucket.read_report(self.folder)

    def close(self) -> None:
        """Stops the checks, and abandons downloads in progress."""
        self._stop.set()
        self._children.close()

    def _run(self) -> None:
        with bucket.locked(self.folder / _LOCK):
            while not self._stop.is_set():
                found = self._check(self.report())
                if self._stop.is_set():
                    return
                self._found = found
                # If the disk is full, the other processes keep the previous report.
                with suppress(OSError):
                    if bucket.read_report(self.folder) != found:
                        bucket.write_report(self.folder, found)
                self._stop.wait(INTERVAL)

    def _check(self, before: bucket.Report) -> bucket.Report:
        try:
            return self._children.call(bucket.synchronize, self.url, self.folder, before)
        except EndedError:
            problem = f"the process that reads {self.url} was killed"
        except Exception as error:
            problem = f"{self.url} cannot be copied ({type(error).__name__}: {error})"
        return before.model_copy(update={"complete": True, "problem": problem})

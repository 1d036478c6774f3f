"""Tasks on a Ray cluster; each step is a task. The command line names the cluster, and the function of the tasks."""

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.worker import Train, serve
from pipelines.core import frameworks
from pipelines.core.cluster_executor import ClusterExecutor

# Functions of the tasks: one does nothing, the other imports the modules of a trial. Both are called with 1.
KINDS: dict[str, Callable[[int], Any]] = {"nothing": abs, "imports": frameworks.load}
# Tasks in flight for each that can run, as in `highway predict`.
AHEAD = 2


def start(task: str) -> Train:
    """Connects to the cluster; see `benchmarks.worker`."""
    settings = json.loads(task)
    function = KINDS[settings["what"]]
    executor = ClusterExecutor(settings["address"], print).__enter__()
    limit = AHEAD * executor.capacity()

    def run(count: int) -> dict[str, Any]:
        started = time.process_time()
        submitted = ended = 0
        while ended < count:
            while submitted < min(count, ended + limit):
                executor.submit(str(submitted), 1, function)
                submitted += 1
            for outcome in executor.finished(1.0):
                assert outcome.error is None, outcome.error
                ended += 1
        return {"losses": [], "processor_seconds": time.process_time() - started}

    return run


if __name__ == "__main__":
    serve(start, "highway-keras", "ray")

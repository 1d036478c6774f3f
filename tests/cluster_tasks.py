"""Tasks that a cluster runs in the tests, and the program that submits them.

    python -m tests.cluster_tasks ADDRESS CORES FUNCTION=ARGUMENT...

Prints a JSON object with result and error of each task, in their order.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from pipelines.core import signals
from pipelines.core.cluster_executor import ClusterExecutor
from pipelines.core.errors import UserError
from pipelines.core.executor import AttemptError
from pipelines.core.guard import guarded
from pipelines.inference.part_tasks import predict_part


def place(text):
    """Returns where a task runs: its cores, those of all its threads, process, folder and backend of Keras.

    Waits up to a minute until two processes run such tasks, as one of them may start late.
    """
    with Path("places").open("a") as file:
        file.write(f"{os.getpid()}\n")
    deadline = time.monotonic() + 60
    while len({*Path("places").read_text().split()}) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    threads = [os.sched_getaffinity(int(thread.name)) for thread in Path("/proc/self/task").iterdir()]
    return {
        "text": text,
        "cores": sorted(os.sched_getaffinity(0)),
        "strays": sum(cores != os.sched_getaffinity(0) for cores in threads),
        "process": os.getpid(),
        "folder": str(Path.cwd()),
        "backend": os.environ["KERAS_BACKEND"],
    }


def process(_):
    """Returns the number of its process."""
    return os.getpid()


def fail(text):
    """Fails by a user error, by a bug, or because the disk is full."""
    if text == "full":
        raise OSError(28, "No space left on device")
    raise UserError("it is wrong") if text == "user" else ZeroDivisionError("so")


def die(text):
    """Kills its process as often as the text says after the colon; the file before it counts."""
    path, _, deaths = text.rpartition(":")
    died = len(Path(path).read_text()) if Path(path).exists() else 0
    if died < int(deaths):
        Path(path).write_text("x" * (died + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return died


def sicken(text):
    """Fails, perhaps because of its node, as often as the text says after the colon; the file before it has its nodes.

    Returns the nodes.
    """
    # Only nodes have imported it.
    ray = sys.modules["ray"]
    path, _, failures = text.rpartition(":")
    with Path(path).open("a") as file:
        file.write(f"{ray.get_runtime_context().get_node_id()}\n")
    nodes = Path(path).read_text().split()
    if len(nodes) <= int(failures):
        raise AttemptError("no memory")
    return nodes


def predict_slowly(part):
    """Predicts a part of a job after a pause, and appends its process to a file next to the folder of the parts."""
    with (part.folder.parent / "processes").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)
    return predict_part(part)


def predict_late(part):
    """Predicts a part of a job after a pause."""
    time.sleep(0.5)
    return predict_part(part)


def wait(path):
    """Appends its process to a file and waits for a minute; saves if it is interrupted."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    try:
        for _ in range(600):
            time.sleep(0.1)
    except KeyboardInterrupt:
        Path(f"{path}-{os.getpid()}").touch()
        raise


def main(address, cores, *tasks):
    """Submits tasks and prints their outcomes."""
    with signals.raised(), ClusterExecutor(address, partial(print, file=sys.stderr), int(cores)) as executor:
        for number, task in enumerate(tasks):
            function, _, argument = task.partition("=")
            executor.submit(str(number), argument, globals()[function])
        outcomes = []
        while len(outcomes) < len(tasks):
            outcomes += executor.finished(1.0)
        found = [[one.result, one.error] for one in sorted(outcomes, key=lambda one: int(one.key))]
        sys.stdout.write(json.dumps({"capacity": executor.capacity(), "outcomes": found}) + "\n")


if __name__ == "__main__":
    # Workers must find its functions under the name of the module.
    from tests import cluster_tasks

    sys.exit(guarded("driver", lambda: cluster_tasks.main(*sys.argv[1:])))

"""Runs tasks on the nodes of a Ray cluster."""

import os
import pickle
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from pipelines.core import environment, guard
from pipelines.core.cluster import connect, watch
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import ATTEMPTS, FRESH, Given, Outcome

DESERTED = 60.0
"""Seconds without a node after which a job ends; nodes that are replaced come back sooner."""
SAVING = 60.0
"""Seconds that tasks get to end, in which training saves."""
SENT = (*guard.ENVIRONMENT, "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS")
"""Variables that affect results or messages of the frameworks; those that are set here are set on the nodes, too."""
DATA_DIR = "TFDS_DATA_DIR"
"""Variable with the default folder of prepared data."""


@dataclass
class _Submission:
    """A task that has not ended, how often it has been started, and the host names of nodes on which it has failed."""

    key: str
    content: bytes
    attempts: int = 0
    failed_on: set[str | None] = field(default_factory=set)


class Node(NamedTuple):
    """A machine of a cluster."""

    id: str
    """Its name in Ray."""
    address: str
    """Its address."""
    host: str
    """Its host name."""
    cores: int
    """Number of cores that take tasks."""


class ClusterExecutor:
    """Runs tasks on a Ray cluster; see `pipelines.core.executor.Executor`.

    Tasks run in the working directory of this process, if the node has it, with this process's settings of the
    frameworks. A node with other code is refused by name once it gets a task. Tasks that run when the `with` block ends
    get Ctrl-C and have `SAVING` seconds to end, unless a `KeyboardInterrupt` ends it.

    Args:
        address: HOST:PORT of the head, or "auto" for the cluster of this machine.
        report: prints a line, for example when a task has lost its process, or when the head does not answer any more.
        cores: cores of a task.
        fresh: tasks after which a process is replaced; 0 for tasks after which nothing stays in memory.

    Raises:
        UserError: see `pipelines.core.cluster.connect`; or no node has enough cores.

    Example:
        with ClusterExecutor("10.0.0.1:6379", print, cores=4) as executor:
            executor.submit("a", Path("a"), Path.stat)
            print(executor.finished(timeout=60.0))
    """

    def __init__(self, address: str, report: Callable[[str], None], cores: int = 1, fresh: int = FRESH) -> None:
        self._address = address
        self._report = report
        self._cores = cores
        self._fresh = fresh
        self._running: dict[Any, _Submission] = {}

    def __enter__(self) -> Self:
        self._ray = connect(self._address)
        try:
            self._setting = self._ray.put(_setting(self._cores))
            options = {"num_cpus": self._cores, "max_retries": 0, "max_calls": self._fresh}
            self._starter = self._ray.remote(**options)(_starter())
            self._populated = time.monotonic()
            if not self.capacity():
                raise UserError(
                    f"no node of the cluster has {self._cores} cores. Start Ray with --num-cpus on other nodes, or ask "
                    "for fewer cores."
                )
            self._end_watch = watch(self._ray.get_runtime_context().gcs_address, self._report)
        except BaseException:
            self._ray.shutdown()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        _, error, _ = raised
        try:
            # Only predictions, which have nothing to save, leave Ctrl-C to Python.
            if self._running and not isinstance(error, KeyboardInterrupt):
                self._interrupt(error)
        finally:
            self._end_watch()
            self.cancel()
            self._ray.shutdown()

    def cancel(self) -> None:
        """Ends the tasks that are running or waiting; they have no outcome."""
        references = [*self._running]
        self._running.clear()
        if references:
            # The reply of a task that has ended may still be on its way, and Ray fails if it is ended once more.
            _, left = self._ray.wait(references, num_returns=len(references), timeout=0)
            for reference in left:
                self._ray.cancel(reference, force=True)

    def capacity(self) -> int:
        """See `Executor`."""
        count = sum(node.cores // self._cores for node in self.nodes())
        if count:
            self._populated = time.monotonic()
        elif time.monotonic() - self._populated > DESERTED:
            raise UserError(
                f"the cluster has had no node with {self._cores} cores for {DESERTED:.0f} s. Start nodes, and repeat "
                "the command to resume."
            )
        return count

    def nodes(self) -> list[Node]:
        """Returns the nodes that take tasks."""
        found = [
            Node(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                host=node["NodeManagerHostname"],
                cores=int(node["Resources"].get("CPU", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return [node for node in found if node.cores >= self._cores]

    def submit_to(self, node: Node, key: str, task: Given, function: Callable[[Given], Any]) -> None:
        """Starts a task on all cores of a node. It is not started again if it loses its process.

        Args:
            node: the node.
            key: see `submit`.
            task: see `submit`.
            function: see `submit`.
        """
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        starter = self._starter.options(num_cpus=node.cores, scheduling_strategy=affinity)
        content = pickle.dumps((task, function))
        reference = starter.remote(_setting(node.cores), key, content)
        self._running[reference] = _Submission(key, content, attempts=ATTEMPTS)

    def submit(self, key: str, task: Given, function: Callable[[Given], Any]) -> None:
        """See `Executor`."""
        self._submit(_Submission(key, pickle.dumps((task, function))))

    def finished(self, timeout: float) -> list[Outcome]:
        """See `Executor`."""
        if not self._running:
            time.sleep(timeout)
            return []
        self._wait(1, timeout)
        ended, _ = self._ray.wait([*self._running], num_returns=len(self._running), timeout=0)
        outcomes = [self._outcome(reference) for reference in ended]
        return [outcome for outcome in outcomes if outcome]

    def _interrupt(self, error: object) -> None:
        if isinstance(error, StoppedError):
            self._report(f"{error.number.name}: tasks that run save and end; a second signal ends them at once")
        else:
            self._report(f"tasks that run have {SAVING:.0f} s to shut down cleanly; a signal ends them at once")
        for reference in self._running:
            self._ray.cancel(reference)
        self._wait(len(self._running), SAVING)

    def _wait(self, count: int, timeout: float) -> None:
        """Waits for the end of some tasks."""
        try:
            self._ray.wait([*self._running], num_returns=count, timeout=timeout)
        except SystemError as error:
            # Ray's C++ code wraps an error that a signal handler raises.
            raise error.__cause__ or error from None

    def _submit(self, submission: _Submission, starter: Any = None) -> None:
        submission.attempts += 1
        starter = starter or self._starter
        self._running[starter.remote(self._setting, submission.key, submission.content)] = submission

    def _outcome(self, reference: Any) -> Outcome | None:
        """Returns the outcome of a task that has ended; None if it starts again."""
        submission = self._running.pop(reference)
        errors = self._ray.exceptions
        try:
            outcome: Outcome | str = self._ray.get(reference)
        except errors.RayTaskError:
            raise
        except errors.RayError as error:
            why = _sentence(error)
            if submission.attempts < ATTEMPTS:
                self._report(f"{submission.key} has lost its process or node and starts again: {why}")
                self._submit(submission)
                return None
            reason = f"it was started {ATTEMPTS} times, and lost its process each time: {why}"
            return Outcome(submission.key, error=reason, lost=True)
        if isinstance(outcome, str):
            raise UserError(outcome)
        if outcome.lost and submission.attempts < ATTEMPTS:
            self._report(f"{submission.key} has failed on the node {outcome.node} and starts again: {outcome.error}")
            submission.failed_on.add(outcome.node)
            self._submit(submission, self._starter_elsewhere(submission))
            return None
        return outcome

    def _starter_elsewhere(self, submission: _Submission) -> Any:
        """Returns the starter of another attempt, each on a node of its own while there are enough.

        A node on which every task fails at once is soon free again, so that Ray would choose it each time.
        """
        nodes = self.nodes()
        if not nodes:
            return self._starter
        nodes = [node for node in nodes if node.host not in submission.failed_on] or nodes
        node = nodes[submission.attempts % len(nodes)]
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=True)
        return self._starter.options(num_cpus=self._cores, scheduling_strategy=affinity)


def _sentence(error: Exception) -> str:
    """Returns the first sentence of an error of Ray, with the address of a node that has died."""
    line = str(error).strip().partition("\n")[0]
    # The rest names logs and commands of Ray, several of them with the same 56 digits.
    first = re.split(r"(?<=\.) (?=[A-Z])", line)[0]
    node = re.search(r"Node IP: ([^\s,]+)", line)
    return f"{first.rstrip('.')} ({node[1]})." if node else first


def _setting(cores: int) -> dict[str, Any]:
    """Returns the setting of a task: plain values, which any version of the program can read."""
    data_dir = os.environ.get(DATA_DIR)
    return {
        "cores": cores,
        "installed": environment.installed(),
        "folder": str(Path.cwd()),
        "variables": {
            **{name: os.environ[name] for name in SENT if name in os.environ},
            # As with --data-dir, nodes read the folder that this process reads.
            **({DATA_DIR: str(Path(data_dir).expanduser().absolute())} if data_dir else {}),
            environment.COMMAND: environment.command(),
        },
    }


def _starter() -> Callable[[Mapping[str, Any], str, bytes], Outcome | str]:
    """Returns the function that nodes run. It is sent as code, so that a node without this program can say so."""

    def start(setting: Mapping[str, Any], key: str, content: bytes) -> Any:
        import socket

        try:
            from pipelines.core.cluster_worker import perform
        except ImportError:
            needed = f"highway-keras {setting['installed']['highway-keras']}"
            return f"the node {socket.gethostname()} lacks {needed}. Install it there, in the environment of Ray."
        return perform(setting, key, content)

    return start

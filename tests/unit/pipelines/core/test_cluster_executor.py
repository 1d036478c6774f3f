"""The executor of a cluster with a Ray that runs tasks in this process, or loses them."""

import signal
import types
from contextlib import nullcontext

import pytest
from rich.console import Console

from pipelines.core import cluster_executor, cluster_worker, environment
from pipelines.core.cluster_executor import ClusterExecutor
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import ATTEMPTS, FRESH, AttemptError
from pipelines.verbs import predict


class FakeRay:
    """Runs a task when its result is requested, after the given number of lost processes."""

    def __init__(self, nodes, losses=0):
        self.exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.util = types.SimpleNamespace(
            scheduling_strategies=types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda name, soft: name)
        )
        self.machines = nodes
        self.losses = losses
        self.ends = True
        self.events = []
        self.reports = []
        self.watched = []

    def nodes(self):
        return [
            {
                "Alive": alive,
                "NodeID": f"{number}",
                "NodeManagerAddress": f"10.0.0.{number}",
                "NodeManagerHostname": f"node{number}",
                "Resources": {"CPU": cores, "memory": 1e9},
            }
            for number, (alive, cores) in enumerate(self.machines)
        ]

    def get_runtime_context(self):
        return types.SimpleNamespace(gcs_address="10.0.0.0:6379")

    def watch(self, head, report):
        self.watched.append(head)
        return self.watched.clear

    def put(self, value):
        return value

    def remote(self, **options):
        self.options = options
        return lambda function: Starter(self, function)

    def wait(self, references, num_returns=1, timeout=0):
        if timeout == cluster_executor.SAVING:
            self.events.append(f"wait for {num_returns}")
        count = num_returns if self.ends else 0
        return references[:count], references[count:]

    def get(self, reference):
        if self.losses:
            self.losses -= 1
            raise RayError("The worker died unexpectedly. Check core-*.log files.\nMore.")
        return reference.function(*reference.given)

    def cancel(self, reference, force=False):
        self.events.append("kill" if force else "interrupt")

    def shutdown(self):
        self.events.append("shutdown")


class Starter:
    def __init__(self, ray, function):
        self.ray, self.function = ray, function

    def options(self, num_cpus, scheduling_strategy):
        self.ray.events.append(f"{num_cpus} cores of node {scheduling_strategy}")
        return self

    def remote(self, *given):
        return Reference(self.function, given)


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Reference:
    def __init__(self, function, given):
        self.function, self.given = function, given


@pytest.fixture(autouse=True)
def _command(monkeypatch):
    """Restores the variable in which a task finds the command of its driver."""
    monkeypatch.setenv(environment.COMMAND, "highway tune demo")


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """A function that makes an executor on a fake Ray."""
    monkeypatch.setattr("pipelines.core.cluster_worker.tempfile.tempdir", str(tmp_path))

    def make(nodes=((True, 4.0), (True, 7.0), (False, 8.0)), cores=2, losses=0):
        ray = FakeRay(nodes, losses)
        monkeypatch.setattr(cluster_executor, "connect", lambda _: ray)
        monkeypatch.setattr(cluster_executor, "watch", ray.watch)
        return ray, ClusterExecutor("auto", ray.reports.append, cores)

    return make


def double(number):
    return 2 * number


def ended(executor, names, error):
    """Ends an executor while tasks run, by an error unless it is None."""
    with executor:
        for name in names:
            executor.submit(name, 1, double)
        if error:
            raise error


def stopped(executor, names):
    ended(executor, names, StoppedError("stopped", signal.SIGTERM))


def sick(times):
    """Fails a number of times."""
    if times:
        times.pop()
        raise AttemptError("out of memory")
    return "done"


def broken(text):
    raise OSError(28, "No space left on device") if text == "full" else UserError(text)


def test_capacity_counts_whole_tasks_of_the_nodes_that_are_alive(opened):
    ray, executor = opened()
    with executor:
        assert executor.capacity() == 2 + 3
        ray.machines = ((True, 4.0),)
        assert executor.capacity() == 2
    assert ray.options["num_cpus"] == 2


def test_processes_are_replaced_after_some_tasks_except_those_that_predict(opened):
    ray, executor = opened()
    with executor:
        assert ray.options["max_calls"] == FRESH
    with predict._executor("auto", Console()):
        # Ray then never ends a process.
        assert ray.options["max_calls"] == 0


def test_the_head_is_watched_until_the_end(opened):
    ray, executor = opened()
    with executor:
        assert ray.watched == ["10.0.0.0:6379"]
    assert ray.watched == []


def test_outcomes_come_once_each(opened):
    ray, executor = opened()
    with executor:
        for number in range(3):
            executor.submit(str(number), number, double)
        outcomes = executor.finished(1.0)
        assert {one.key: one.result for one in outcomes} == {"0": 0, "1": 2, "2": 4}
        assert executor.finished(0.0) == []
    assert ray.events == ["shutdown"]


def test_a_user_error_is_not_tried_again(opened):
    _, executor = opened()
    with executor:
        executor.submit("a", "so", broken)
        (outcome,) = executor.finished(1.0)
        assert (outcome.error, outcome.result) == ("so", None)


def test_a_failure_names_its_node_once(opened, monkeypatch):
    monkeypatch.setattr(cluster_worker.socket, "gethostname", lambda: "node3")
    _, executor = opened()
    with executor:
        texts = "the data are missing.", "/photos is missing on node3.", "it is not on node30.", "1\nValueError: x\n"
        for key, text in enumerate(texts):
            executor.submit(str(key), text, broken)
        outcomes = sorted(executor.finished(1.0), key=lambda outcome: outcome.key)
    assert [outcome.failure() for outcome in outcomes] == [
        "the data are missing. This was on the node node3.",
        "/photos is missing on node3.",
        "it is not on node30. This was on the node node3.",
        "1\nValueError: x\nThis was on the node node3.",
    ]


@pytest.mark.parametrize("losses", [2, 3])
def test_a_task_that_loses_its_process_is_tried_again_twice(opened, losses):
    ray, executor = opened(losses=losses)
    with executor:
        executor.submit("a", 1, double)
        for _ in range(2):
            assert executor.finished(1.0) == []
        (outcome,) = executor.finished(1.0)
    failed = "it was started 3 times, and lost its process each time: The worker died unexpectedly."
    assert (outcome.result, outcome.error) == ((2, None) if losses == 2 else (None, failed))
    again = "a has lost its process or node and starts again: The worker died unexpectedly."
    assert ray.reports == [again] * 2


def test_a_node_that_has_died_is_named():
    dead = RayError("The node is dead. Node IP: 10.0.0.3, node ID: 4f1a. This can happen.")
    assert cluster_executor._sentence(dead) == "The node is dead (10.0.0.3)."


@pytest.mark.parametrize("failures", [ATTEMPTS - 1, ATTEMPTS])
def test_a_task_that_fails_because_of_its_node_starts_again_on_others(opened, monkeypatch, failures):
    monkeypatch.setattr(cluster_worker.socket, "gethostname", lambda: "node3")
    # Both ends are in this process.
    monkeypatch.setattr(cluster_executor.pickle, "dumps", lambda given: given)
    monkeypatch.setattr(cluster_worker.pickle, "loads", lambda given: given)
    ray, executor = opened()
    with executor:
        executor.submit("a", [None] * failures, sick)
        for _ in range(ATTEMPTS - 1):
            assert executor.finished(1.0) == []
        (outcome,) = executor.finished(1.0)
    assert outcome.result == ("done" if failures < ATTEMPTS else None)
    assert outcome.error == (None if failures < ATTEMPTS else "out of memory")
    assert ray.events[:2] == ["2 cores of node 1", "2 cores of node 0"]
    again = "a has failed on the node node3 and starts again: out of memory"
    assert ray.reports == [again] * (ATTEMPTS - 1)


@pytest.mark.parametrize(("first", "second"), [("node0", "node1"), ("node1", "node0")])
def test_a_task_does_not_start_again_on_a_node_on_which_it_has_failed(opened, monkeypatch, first, second):
    hosts = iter([first, second])
    monkeypatch.setattr(cluster_worker.socket, "gethostname", lambda: next(hosts))
    monkeypatch.setattr(cluster_executor.pickle, "dumps", lambda given: given)
    monkeypatch.setattr(cluster_worker.pickle, "loads", lambda given: given)
    ray, executor = opened()
    with executor:
        executor.submit("a", [None], sick)
        assert executor.finished(1.0) == []
        (outcome,) = executor.finished(1.0)
    assert (outcome.result, outcome.node) == ("done", second)
    assert ray.events[0] == f"2 cores of node {second[-1]}"


def test_a_bug_of_the_executor_itself_is_raised(opened):
    ray, executor = opened()

    def fails(_):
        raise RayTaskError("a bug")

    ray.get = fails
    with executor:
        executor.submit("a", 1, double)
        with pytest.raises(RayTaskError, match="a bug"):
            executor.finished(1.0)


def test_a_full_disk_ends_all_tasks(opened):
    _, executor = opened()
    with executor:
        executor.submit("a", "full", broken)
        with pytest.raises(UserError, match=r"the disk is full .*\. This was on the node "):
            executor.finished(1.0)


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ({"keras": "3.1"}, r"has keras 3\.1, and this machine has keras "),
        ({"jax": None}, r"has no jax, and this machine has jax "),
        ({"code": "0"}, r"has other code of highway-keras .* than this machine"),
    ],
)
def test_a_node_with_something_else_installed_is_refused(opened, monkeypatch, installed, message):
    _, executor = opened()
    there = {name: version for name, version in {**environment.installed(), **installed}.items() if version}
    with executor:
        executor.submit("a", 1, double)
        monkeypatch.setattr(cluster_worker.environment, "installed", lambda: there)
        with pytest.raises(UserError, match=f"the node .* {message}"):
            executor.finished(1.0)


def test_ctrl_c_of_a_prediction_cancels_what_runs(opened):
    ray, executor = opened()
    ray.ends = False
    with pytest.raises(KeyboardInterrupt):
        ended(executor, "ab", KeyboardInterrupt())
    assert ray.events == ["kill", "kill", "shutdown"]
    assert ray.reports == []


@pytest.mark.parametrize("error", [None, UserError("a node lacks the data"), ZeroDivisionError()])
def test_tasks_may_save_at_a_deadline_and_after_an_error(opened, error):
    ray, executor = opened()
    with pytest.raises(type(error)) if error else nullcontext():
        ended(executor, "ab", error)
    assert ray.events == ["interrupt", "interrupt", "wait for 2", "shutdown"]
    assert ray.reports == ["tasks that run have 60 s to shut down cleanly; a signal ends them at once"]


@pytest.mark.parametrize(("ends", "kills"), [(True, []), (False, ["kill", "kill"])])
def test_tasks_may_save_when_a_signal_comes(opened, ends, kills):
    ray, executor = opened()
    ray.ends = ends
    with pytest.raises(StoppedError):
        stopped(executor, "ab")
    assert ray.events == ["interrupt", "interrupt", "wait for 2", *kills, "shutdown"]
    assert ray.reports == ["SIGTERM: tasks that run save and end; a second signal ends them at once"]


def test_a_second_signal_ends_tasks_at_once(opened, monkeypatch):
    ray, executor = opened()

    def again(references, num_returns, timeout):
        if timeout:
            raise SystemError("wrapped by Ray") from StoppedError("again", signal.SIGINT)
        return [], references

    monkeypatch.setattr(ray, "wait", again)
    with pytest.raises(StoppedError, match="again"):
        stopped(executor, "a")
    assert ray.events == ["interrupt", "kill", "shutdown"]


def test_a_task_on_a_node_has_all_of_its_cores_and_is_not_started_again(opened):
    ray, executor = opened(losses=1)
    with executor:
        first, second = executor.nodes()
        assert [(node.address, node.cores) for node in (first, second)] == [("10.0.0.0", 4), ("10.0.0.1", 7)]
        executor.submit_to(second, "a", 1, double)
        (outcome,) = executor.finished(1.0)
        assert (outcome.key, outcome.lost) == ("a", True)
        executor.submit_to(second, "a", 1, double)
        assert [outcome.result for outcome in executor.finished(1.0)] == [2]
    assert ray.events[:2] == ["7 cores of node 1"] * 2


def test_too_few_cores_are_refused(opened):
    ray, executor = opened(nodes=((True, 1.0),))
    with pytest.raises(UserError, match="no node of the cluster has 2 cores"), executor:
        pytest.fail("not refused")
    assert ray.events == ["shutdown"]


def test_a_cluster_without_nodes_is_given_up_after_a_while(opened, monkeypatch):
    ray, executor = opened()
    now = [100.0]
    monkeypatch.setattr(cluster_executor.time, "monotonic", lambda: now[0])
    with executor:
        ray.machines = ()
        assert executor.capacity() == 0
        now[0] += cluster_executor.DESERTED + 1
        with pytest.raises(UserError, match="has had no node with 2 cores for 60 s"):
            executor.capacity()
        ray.machines = ((True, 2.0),)
        assert executor.capacity() == 1

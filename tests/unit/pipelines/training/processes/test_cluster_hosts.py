"""The nodes that train a run: enough of them, others after a loss; without a cluster."""

import io
import itertools
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines import recipes
from pipelines.core import files
from pipelines.core.cluster_executor import Node
from pipelines.core.errors import LostHostError, StoppedError, UserError
from pipelines.core.executor import Outcome
from pipelines.core.files import file_lock, replacing
from pipelines.core.run import create
from pipelines.training import checkpoint_file
from pipelines.training.checkpoint_file import CHECKPOINTS, NEWEST
from pipelines.training.processes import cluster_hosts
from pipelines.training.processes.cluster_hosts import train_on_cluster
from pipelines.training.processes.host import HostTask
from pipelines.verbs import train as train_verb
from tests.toy_data import RECORD, toy_config

LOST = {"error": "it lost its process", "lost": True}


class Script:
    """A cluster on which each attempt at training has given outcomes, one for each of its nodes.

    Args:
        attempts: for each attempt, result or error of each process.
        nodes: for each attempt, the number of nodes of the cluster.
        busy: nodes on which another task runs.
    """

    def __init__(self, attempts, nodes, busy=()):
        self.attempts, self.counts, self.busy = list(attempts), list(nodes), busy
        self.tasks, self.ended = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def nodes(self):
        return [Node(f"node-{number}", f"10.0.0.{number}", f"host-{number}", 4) for number in range(self.counts[0])]

    def submit_to(self, node, key, task, function):
        if function is cluster_hosts.free_address:
            if node.id in self.busy:
                return
            self.ended.append(Outcome(key, f"{task}:1234"))
            return
        if key == "0":
            self.counts = self.counts[1:] or self.counts
            self.tasks.append([])
        self.tasks[-1].append((node.id, task))
        self.ended.append(Outcome(key, **self.attempts[len(self.tasks) - 1][int(key)]))

    def cancel(self):
        self.ended.clear()

    def finished(self, timeout):
        ended, self.ended = self.ended, []
        if any(outcome.error == "signal" for outcome in ended):
            raise StoppedError("stopped", signal.SIGTERM)
        return ended


TRAINED, OTHER_LOST = {"result": "trained"}, {"result": "lost"}


@pytest.fixture
def train(monkeypatch, tmp_path):
    """A function that trains with a script, and returns it with the printed lines."""
    monkeypatch.setattr(cluster_hosts, "SETTLE", 0.1)
    monkeypatch.setattr(cluster_hosts, "RESETTLE", 0.1)
    steps, saved = itertools.count(10, 10), itertools.count(0, 10)
    monkeypatch.setattr(cluster_hosts, "_step", lambda task: next(steps))
    monkeypatch.setattr(cluster_hosts, "saved_step", lambda run: next(saved))

    def run(attempts, *, nodes=(2,), hosts=2, least=None, busy=(), **fields):
        script, output = Script(attempts, nodes, busy), io.StringIO()
        monkeypatch.setattr(cluster_hosts, "ClusterExecutor", lambda address, report: script)
        task = HostTask(**{"folder": tmp_path / "run", "data_dir": None, "config": None, **fields})
        train_on_cluster(task, "auto", hosts=hosts, least=least, console=Console(file=output, width=200))
        return script, output.getvalue().splitlines()

    return run


def hosts_of(script):
    """Returns the processes of each attempt: its node, and count and index of each."""
    return [[(node, task.hosts.count, task.hosts.index) for node, task in attempt] for attempt in script.tasks]


def test_every_node_gets_a_process(train, tmp_path):
    script, lines = train([[TRAINED, TRAINED]], nodes=[3])
    assert hosts_of(script) == [[("node-0", 2, 0), ("node-1", 2, 1)]]
    assert {task.hosts.address for _, task in script.tasks[0]} == {"10.0.0.0:1234"}
    assert lines == []
    assert list(tmp_path.iterdir()) == []


def test_nodes_read_the_data_of_the_command_in_whatever_folder_they_are(train, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    script, _ = train([[TRAINED, TRAINED]], data_dir=Path("~/data"))
    assert {task.task.data_dir for _, task in script.tasks[0]} == {tmp_path / "data"}


def test_a_lost_node_is_replaced(train):
    script, lines = train([[OTHER_LOST, LOST], [LOST, OTHER_LOST], [TRAINED, TRAINED]])
    assert len(script.tasks) == 3
    assert lines == [
        f"a node or its process was lost after step {step}; the run goes on from its last checkpoint"
        for step in (10, 20)
    ]


def test_a_process_that_is_killed_is_named_and_replaced(train):
    killed = {"result": "process 1 on b was killed by SIGKILL"}
    script, lines = train([[OTHER_LOST, killed], [TRAINED, TRAINED]])
    assert len(script.tasks) == 2
    assert lines == [
        killed["result"],
        "a node or its process was lost after step 10; the run goes on from its last checkpoint",
    ]


def test_kills_without_a_checkpoint_end_the_run(train, monkeypatch):
    monkeypatch.setattr(cluster_hosts, "saved_step", lambda run: 7)
    with pytest.raises(LostHostError, match="lost 3 times in a row before a checkpoint"):
        train([[OTHER_LOST, {"result": "process 1 on b was killed by SIGKILL"}]] * 3)


def test_a_second_command_is_refused_and_leaves_the_first_one_alone(train, tmp_path):
    log = tmp_path / ".run.log"
    log.write_text("epoch 1\n")
    with file_lock(log, "not here"), pytest.raises(UserError, match=f"another process is training in {tmp_path}/run"):
        train([])
    assert log.read_text() == "epoch 1\n"
    # A command that was killed holds no lock.
    train([[TRAINED, TRAINED]])
    assert not log.exists()


def test_commands_share_no_output_in_a_bucket_where_nothing_is_locked(train):
    logs = {train([[TRAINED, TRAINED]], url="memory://runs/run")[0].tasks[0][0][1].task.log for _ in range(2)}
    assert len(logs) == 2
    assert not any(log.exists() for log in logs)


def test_a_cluster_that_cannot_be_reached_leaves_nothing(monkeypatch, tmp_path):
    def refuses(*_):
        raise UserError("no Ray cluster answers")

    monkeypatch.setattr(Script, "__enter__", refuses)
    monkeypatch.setattr(cluster_hosts, "ClusterExecutor", lambda address, report: Script([], [2]))
    task = HostTask(folder=tmp_path / "runs" / "run", data_dir=None, config=None)
    with pytest.raises(UserError, match="no Ray cluster answers"):
        train_on_cluster(task, "auto", hosts=2, least=None, console=Console())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_sentence(train, tmp_path):
    (tmp_path / "file.tar").touch()
    with pytest.raises(UserError, match=r"file\.tar/\.run\.log cannot be written: "):
        train([], folder=tmp_path / "file.tar" / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--resume missing/run", "there is no run directory missing/run"),
        ("--resume file.tar/run", "there is no run directory file.tar/run"),
        ("mnist_dense_10 --run full", "full exists already"),
        ("mnist_dense_10 --run file.tar/run", "file.tar/run cannot be written: .*file.tar is a file"),
        ("mnist_dense_10 --run sealed/run", "sealed/run cannot be written: .*sealed is read-only"),
    ],
)
def test_a_run_is_checked_before_the_cluster(monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(cluster_hosts, "train_on_cluster", lambda *_, **__: pytest.fail("the cluster was asked"))
    # Root may write anywhere, but not to a folder that is immutable.
    monkeypatch.setattr(files.os, "access", lambda place, mode: place.name != "sealed")
    (tmp_path / "full").mkdir()
    (tmp_path / "sealed").mkdir()
    (tmp_path / "file.tar").touch()
    with pytest.raises(UserError, match=message):
        train_verb.main([*words.split(), "--cluster", "auto"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.tar", "full", "sealed"]


def test_fewer_nodes_suffice_if_allowed(train):
    script, _ = train([[OTHER_LOST, LOST, OTHER_LOST], [TRAINED, TRAINED]], nodes=[3, 2], hosts=3, least=2)
    assert [len(attempt) for attempt in script.tasks] == [3, 2]


def test_missing_nodes_are_waited_for_less_long_after_a_loss(train, monkeypatch):
    waits, nodes = [], cluster_hosts._nodes

    def waiting(executor, hosts, least, patience, console):
        waits.append(patience)
        return nodes(executor, hosts, least, patience, console)

    monkeypatch.setattr(cluster_hosts, "_nodes", waiting)
    monkeypatch.setattr(cluster_hosts, "RESETTLE", 0.05)
    train([[OTHER_LOST, LOST], [TRAINED]], nodes=[2, 1], least=1)
    assert waits == [0.1, 0.05]


@pytest.mark.parametrize(("least", "seconds"), [(1, 15), (2, 25)])
def test_with_enough_nodes_the_wait_is_shorter(monkeypatch, least, seconds):
    # Each look at the clock takes a second.
    clock, lines = itertools.count(), []
    monkeypatch.setattr(cluster_hosts, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(cluster_hosts, "say", lambda _, line: lines.append(line))
    try:
        cluster_hosts._nodes(Script([], [1]), 2, least, 15, None)
    except UserError:
        assert least == 2
    assert next(clock) - 1 == seconds
    # Nobody waits that long without a word.
    assert lines == [f"1 of 2 nodes take tasks; waiting up to {seconds} s for the others"]


@pytest.mark.parametrize(
    ("batch", "mixup", "least", "count"),
    # In the last case, no number of them would do: the processes refuse the batch size.
    [(100, 0, 2, 2), (96, 0, 2, 3), (104, 0.2, 2, 2), (96, 0.2, 2, 3), (100, 0, 3, 3)],
)
def test_the_nodes_that_are_left_divide_a_batch_evenly(train, batch, mixup, least, count):
    config = configured(batch, mixup)
    attempts = [[OTHER_LOST, OTHER_LOST, OTHER_LOST, LOST], [TRAINED] * count]
    script, (_, line) = train(attempts, nodes=[4, 3], hosts=4, least=least, config=config)
    assert [len(attempt) for attempt in script.tasks] == [4, count]
    left = f"3 of 4 nodes take tasks; the run is trained on {count}"
    assert line == (f"{left}, which divide a batch of {batch} evenly" if count == 2 else left)


def test_if_all_nodes_cannot_divide_a_batch_fewer_train(train):
    script, (line,) = train([[TRAINED] * 3], nodes=[4], hosts=4, least=2, config=configured(99, 0))
    assert [len(attempt) for attempt in script.tasks] == [3]
    assert line == "4 of 4 nodes take tasks; the run is trained on 3, which divide a batch of 99 evenly"


@pytest.mark.parametrize(
    ("batch", "mixup", "least", "message"),
    [
        (101, 0, None, "among 4 processes. Choose --batch-size 100 or 104"),
        (101, 0, 2, "among 4 processes. Choose --batch-size 100 or 104"),
        (100, 0.2, None, "among 4 processes, with an even number of images each to mix. Choose --batch-size 96 or 104"),
    ],
)
def test_a_batch_that_no_number_of_nodes_divides_is_refused_before_any_is_asked(train, batch, mixup, least, message):
    with pytest.raises(UserError, match=f"a batch of {batch} cannot be divided evenly {message}"):
        train([], nodes=(), hosts=4, least=least, config=configured(batch, mixup))


def test_so_is_that_of_a_resumed_run(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(configured(101).model_dump_json())
    with pytest.raises(UserError, match="a batch of 101 cannot be divided evenly among 4 processes"):
        train([], nodes=(), hosts=4)


def test_the_nodes_of_a_resumed_run_divide_its_batch_evenly(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(configured(100).model_dump_json())
    script, _ = train([[TRAINED, TRAINED]], nodes=[3], hosts=4, least=2)
    assert len(script.tasks[0]) == 2


def configured(batch, mixup=0.0):
    config = recipes.named_recipe("mnist_conv_32").config
    changes = {"batch_size": batch, "augment": config.augment.model_copy(update={"mixup": mixup})}
    return config.model_copy(update=changes)


@pytest.mark.parametrize(("hosts", "least", "needed"), [(3, None, 3), (4, 3, 3)])
def test_too_few_nodes_are_refused(train, hosts, least, needed):
    with pytest.raises(UserError, match=f"training needs {needed} nodes, and the cluster has 2 that take tasks"):
        train([], hosts=hosts, least=least)


def test_nodes_that_are_busy_are_no_missing_ones(train):
    with pytest.raises(UserError, match=r"has 1 that take tasks \(alive but busy: 2\)\. Wait for other tasks, start"):
        train([], nodes=[3], hosts=3, busy=("node-1", "node-2"))


def test_losses_without_a_checkpoint_end_the_run(train, monkeypatch):
    monkeypatch.setattr(cluster_hosts, "saved_step", lambda run: 7)
    with pytest.raises(LostHostError, match=r"lost 3 times in a row before a checkpoint. Repeat .* --resume"):
        train([[LOST, OTHER_LOST]] * 3)


@pytest.mark.parametrize(
    # Steps in run.json and in the newest checkpoint at the end of each attempt.
    ("attempts", "begun"),
    [
        # Every other attempt ends an epoch, and the next one goes back to the start.
        ([(10, 0), (0, 0)] * 3, 3),
        # A checkpoint that was lost is saved again.
        ([(7, 7), (6, 6)] * 3, 3),
        ([(10, 0), (10, 7), (10, 7), (10, 8), (10, 8), (10, 8)], 6),
    ],
)
def test_only_checkpoints_of_further_steps_are_progress(train, monkeypatch, tmp_path, attempts, begun):
    run, train_once, ends = create(tmp_path / "run", toy_config(), RECORD), cluster_hosts._train, iter(attempts)

    def train_on(*words):
        recorded, saved = next(ends)
        run.update(step=recorded)
        with replacing(run.path / CHECKPOINTS / NEWEST) as aside:
            checkpoint_file.write(aside, {"progress": {"step": saved}}, [], [])
        return train_once(*words)

    monkeypatch.setattr(cluster_hosts, "saved_step", checkpoint_file.saved_step)
    monkeypatch.setattr(cluster_hosts, "_train", train_on)
    with pytest.raises(LostHostError, match="lost 3 times in a row before a checkpoint"):
        train([[LOST, OTHER_LOST]] * 6)
    assert len([*ends]) == len(attempts) - begun


def test_a_run_is_given_up_with_the_last_reason(train, monkeypatch):
    monkeypatch.setattr(cluster_hosts, "saved_step", lambda run: 7)
    waited = "process 0 of 2 has waited 300 s for the others at 10.0.0.0:1234"
    with pytest.raises(LostHostError, match=rf"in a row before a checkpoint \({waited}\)\. Repeat .* --resume"):
        train([[{"result": waited}, OTHER_LOST]] * 3)


def test_an_error_of_a_process_is_that_of_the_command(train):
    with pytest.raises(UserError, match=r"the data is missing\. This was on the node node3\."):
        train([[{"error": "the data is missing.", "node": "node3"}, OTHER_LOST]])


def test_a_signal_says_how_to_resume(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    again = ("--data-dir", "data", "--cluster", "auto", "--hosts", "2")
    with pytest.raises(StoppedError, match=rf"highway train --resume {tmp_path / 'run'} {' '.join(again)}$"):
        train([[{"error": "signal"}, OTHER_LOST]], again=again)


DIED = "one of the 2 processes has died or cannot be reached"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (LostHostError(f"{DIED}. Start all of them again."), "lost"),
        (LostHostError("process 1 of 2 has waited 300 s. Start all of them."), "process 1 of 2 has waited 300 s"),
        (SystemExit(75), "the data is missing"),
        (SystemExit(137), f"process 1 on {socket.gethostname()} was killed by SIGKILL"),
        (SystemExit(139), f"process 1 on {socket.gethostname()} was killed by SIGSEGV"),
        (SystemExit(2), UserError),
        (SystemExit(143), SystemExit),
        (None, "trained"),
    ],
)
def test_the_end_of_a_process(tmp_path, monkeypatch, end, expected):
    def together(task, hosts, console):
        sys.stderr.write("highway train: error: the data is missing\n")
        if end:
            raise end

    monkeypatch.setattr(cluster_hosts, "train_together", together)
    monkeypatch.setattr(cluster_hosts.os, "environ", {})
    (tmp_path / "log").touch()
    task = HostTask(folder=tmp_path / "run", data_dir=None, config=None, log=tmp_path / "log")
    process = cluster_hosts.HostProcess(task, SimpleNamespace(address="a:1", count=2, index=1, leads=False))
    if isinstance(expected, str):
        assert cluster_hosts.train_as_host(process) == expected
        return
    with pytest.raises(expected) as raised:
        cluster_hosts.train_as_host(process)
    assert expected is SystemExit or str(raised.value) == "the data is missing"


def test_a_node_without_the_folder_is_named(tmp_path):
    task = HostTask(folder=tmp_path / "run", data_dir=None, config=None, log=tmp_path / "other" / "log")
    process = cluster_hosts.HostProcess(task, SimpleNamespace(address="a:1", count=2, index=1, leads=False))
    with pytest.raises(UserError, match=f"{tmp_path} on .* is missing, or is not the folder of"):
        cluster_hosts.train_as_host(process)

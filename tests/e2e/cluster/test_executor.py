"""Tasks on a cluster of a head and two nodes, each with one core."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "tests.cluster_tasks")


@pytest.fixture
def submit(cluster, tmp_path):
    """A function that runs a task for each argument; it returns the capacity, and result and error of each task."""

    def run(function, *arguments, cores=1, status=0, environment=None, address=None):
        words = [*PROGRAM, address or cluster.address, str(cores), function, *map(str, arguments)]
        # Ray adds the folder to the paths from which nodes import.
        ended, output = cluster.run(words, environment, cwd=tmp_path)
        assert ended == status, output
        if status:
            return output
        found = json.loads(output.splitlines()[-1])
        return found["capacity"], [found["outcomes"][str(number)] for number in range(len(arguments))]

    return run


def test_tasks_run_on_cores_of_their_own_with_the_settings_of_the_driver(submit, tmp_path):
    capacity, found = submit("place", *"abcdef", environment={"KERAS_BACKEND": "jax"})
    assert capacity == 2
    places = [result for result, _ in found]
    assert [place["text"] for place in places] == [*"abcdef"]
    assert {place["backend"] for place in places} == {"jax"}
    assert {place["folder"] for place in places} == {str(tmp_path)}
    assert {len(place["cores"]) for place in places} == {1}
    assert {place["strays"] for place in places} == {0}
    if len(os.sched_getaffinity(0)) > 1:
        # Two run at the same time.
        assert len({place["cores"][0] for place in places}) > 1


def test_processes_are_replaced(submit):
    # Without that, one of the two would run seventeen.
    _, found = submit("process", *range(33))
    processes = [result for result, _ in found]
    assert max(map(processes.count, processes)) <= 16


def test_errors_of_tasks_are_outcomes(submit):
    _, found = submit("fail", "user", "bug")
    assert found[0] == [None, "it is wrong"]
    assert found[1][1].splitlines()[-1] == "ZeroDivisionError: so"
    assert "in fail" in found[1][1]


def test_a_full_disk_ends_all_tasks(submit):
    output = submit("fail", "full", status=2)
    assert "the disk is full ([Errno 28] No space left on device)" in output
    assert f"on the node {socket.gethostname()}" in output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("pipelines/core/run.py", "has other code of highway-keras .* than this machine. Install the same there"),
        ("pipelines/core/cluster_worker.py", "lacks highway-keras .* Install it there"),
    ],
)
def test_a_node_with_another_program_is_refused_by_name(submit, cluster, tmp_path, changed, message):
    for package in ("highway_keras", "pipelines", "serving"):
        shutil.copytree(ROOT / package, tmp_path / "other" / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "other" / changed
    path.rename(path.with_stem("renamed"))
    if "lacks" not in message:
        path.write_text("# changed\n" + path.with_stem("renamed").read_text())
    cluster.add("other", env_vars={"PYTHONPATH": str(tmp_path / "other")})
    try:
        assert re.search(f"the node {socket.gethostname()} {message}", submit("place", *"abcdef", status=2))
    finally:
        cluster.kill("other")


def test_a_task_that_loses_its_process_starts_again_three_times(submit, tmp_path):
    _, found = submit("die", f"{tmp_path / 'a'}:3", f"{tmp_path / 'b'}:4")
    assert found[0] == [3, None]
    assert "started 4 times, and lost its process each time" in found[1][1]
    assert len((tmp_path / "b").read_text()) == 4


def test_too_many_cores_are_refused(submit):
    assert "no node of the cluster has 2 cores" in submit("process", 0, cores=2, status=2)


@pytest.mark.parametrize("token", ["missing", "wrong"])
def test_a_driver_without_the_token_is_refused(submit, tmp_path, token):
    path = tmp_path / "token"
    if token == "wrong":
        path.write_text("0" * 48)
    output = submit("process", 0, status=2, environment={"RAY_AUTH_TOKEN_PATH": str(path), "HOME": str(tmp_path)})
    message = "and does not accept that of this machine" if token == "wrong" else "and there is none on this machine"
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("here", "--cluster must be HOST:PORT or auto. Received: here"),
    ],
)
def test_addresses_without_a_cluster_are_refused_at_once(submit, address, message):
    output = submit("process", 0, status=2, address=address)
    assert message in output
    assert "Traceback" not in output


def test_the_cluster_of_this_machine(submit, cluster):
    assert submit("process", 0, address="auto", environment={"RAY_ADDRESS": cluster.address})[0] == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_the_end_of_a_driver_ends_its_tasks(cluster, tmp_path, how):
    started = tmp_path / "started"
    words = [*PROGRAM, cluster.address, "1", "wait", str(started), str(started)]
    driver = cluster.start(words, stdout=subprocess.PIPE)
    wait_until(lambda: started.exists() and len(started.read_text().split()) == 2)
    driver.send_signal(how)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == (130 if how == signal.SIGINT else -how), output
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in started.read_text().split()))


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

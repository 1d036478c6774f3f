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

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "tests.cluster_tasks")


@pytest.fixture
def submit(cluster, tmp_path):
    """A function that runs tasks; it returns the capacity, and result and error of each task, or else the output."""

    def run(*tasks, status=0, environment=None, address=None):
        words = [*PROGRAM, address or cluster.address, "1", *tasks]
        # Ray adds the folder to the paths from which nodes import.
        ended, output = cluster.run(words, environment, cwd=tmp_path)
        assert ended == status, output
        assert "Traceback" not in output
        if status:
            return output
        # Lines before it report lost processes.
        *_, line = output.splitlines()
        found = json.loads(line)
        return found["capacity"], found["outcomes"]

    return run


def test_tasks_run_on_cores_of_their_own_with_the_settings_of_the_driver(submit, cluster, tmp_path):
    variables = {"KERAS_BACKEND": "jax", "RAY_ADDRESS": cluster.address}
    capacity, found = submit(*map("place={}".format, "abcd"), environment=variables, address="auto")
    assert capacity == 2
    places = [result for result, _ in found]
    assert [place["text"] for place in places] == [*"abcd"]
    assert {place["backend"] for place in places} == {"jax"}
    assert {place["folder"] for place in places} == {str(tmp_path)}
    assert {len(place["cores"]) for place in places} == {1}
    assert {place["strays"] for place in places} == {0}
    if len(os.sched_getaffinity(0)) > 1:
        # Two run at the same time.
        assert len({place["cores"][0] for place in places}) > 1


def test_errors_lost_processes_and_old_ones(submit, tmp_path):
    # Of 33 tasks on two processes, one would run seventeen.
    tasks = ["fail=user", f"die={tmp_path / 'died'}:2", *["process="] * 33]
    _, ((_, error), (deaths, lost), *others) = submit(*tasks)
    assert error == "it is wrong"
    assert (deaths, lost) == (2, None)
    processes = [result for result, _ in others]
    assert max(map(processes.count, processes)) <= 16


def test_a_task_that_a_node_fails_starts_again_on_another(submit, tmp_path):
    _, ((nodes, error), (_, failure)) = submit(f"sicken={tmp_path / 'a'}:2", f"sicken={tmp_path / 'b'}:3")
    assert (error, failure) == (None, "no memory")
    assert len(nodes) == 3
    assert nodes[1] != nodes[2]


def test_a_wrong_token_is_refused(submit):
    output = submit("process=", status=2, environment={"RAY_AUTH_TOKEN": "0" * 48})
    assert "asks for a token, and does not accept that of this machine" in output


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
        assert re.search(f"the node {socket.gethostname()} {message}", submit(*["place="] * 6, status=2))
    finally:
        cluster.kill("other")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_end_of_a_driver_ends_its_tasks(cluster, tmp_path, how):
    started = tmp_path / "started"
    words = [*PROGRAM, cluster.address, "1", *[f"wait={started}"] * 2]
    driver = cluster.start(words, stdout=subprocess.PIPE)
    wait_until(lambda: started.exists() and len(started.read_text().split()) == 2)
    driver.send_signal(how)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == (-how if how == signal.SIGKILL else 128 + how), output
    processes = started.read_text().split()
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    saved = [tmp_path / f"started-{process}" for process in processes]
    assert all(path.exists() == (how != signal.SIGKILL) for path in saved)


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

"""`highway serve --workers 2`: one endpoint to its clients, whichever process dies."""

import http.client
import json
import os
import signal
from pathlib import Path

import pytest

from tests import tiny_model
from tests.endpoint import Endpoint, eventually

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
PIXELS = bytes(range(12))
RAW = {"content-type": "application/octet-stream"}


def workers(endpoint):
    pid = endpoint.process.pid
    return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def get(endpoint, path, body=None):
    """Sends a request over a new connection, which any worker may accept."""
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST" if body else "GET", path, body, RAW)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def predict(endpoint):
    """Predicts, and returns the version that answered."""
    status, text = get(endpoint, "/predict/tiny", PIXELS)
    assert status == 200, text
    return json.loads(text)["version"]


def predictions(endpoint):
    lines = get(endpoint, "/metrics")[1].splitlines()
    found = [line for line in lines if line.startswith("highway_requests_total{") and 'status="200"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found if 'route="/predict/{name}"' in line)


def loads(endpoint, version):
    """Returns how often workers have loaded a version."""
    return sum(one["message"] == "version loaded" and one["version"] == version for one in endpoint.log())


def answering(folder):
    """Returns how many workers have answered a prediction, by the files of their metrics."""
    return sum(b"/predict/{name}" in file.read_bytes() for file in folder.glob("*/counter_*.db"))


@pytest.fixture
def models(tmp_path):
    tiny_model.write(tmp_path / "models" / "tiny" / "1")
    return tmp_path / "models"


def test_two_workers_answer_as_one_endpoint_even_if_one_is_killed(models, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    with Endpoint(models, tmp_path / "log", "--workers", "2", TMPDIR=str(folder)) as endpoint:
        eventually(lambda: loads(endpoint, 1) == 2, 60)
        assert [predict(endpoint) for _ in range(30)] == [1] * 30
        # A prediction is counted once it is answered.
        eventually(lambda: predictions(endpoint) == 30, 60)
        # Every worker reports the metrics of all of them.
        assert [predictions(endpoint) for _ in range(8)] == [30] * 8
        first = workers(endpoint)
        assert len(first) == 2

        os.kill(min(first), signal.SIGKILL)
        eventually(lambda: len(workers(endpoint) - first) == 1, 60)
        assert {predict(endpoint) for _ in range(5)} == {1}
        eventually(lambda: loads(endpoint, 1) == 3, 60)
        assert {predict(endpoint) for _ in range(30)} == {1}
        assert predictions(endpoint) == 65
        # The new worker adds to the metrics of the one before, in the same files.
        assert len({*folder.glob("*/counter_*.db")}) == 2
        (line,) = (one for one in endpoint.log() if one["message"] == "worker ended")
        assert (line["pid"], line["status"]) == (min(first), -signal.SIGKILL)

        aside = tiny_model.write(tmp_path / "aside" / "tiny" / "2", seed=1)
        aside.rename(models / "tiny" / "2")
        eventually(lambda: loads(endpoint, 2) == 2, 60)
        assert {predict(endpoint) for _ in range(30)} == {2}

        last = workers(endpoint)
        assert endpoint.stop() == 0
        assert not any(map(is_alive, last))
    # The folder of their metrics is deleted.
    assert list(folder.iterdir()) == []


def test_a_worker_that_is_starting_refuses_nothing(models, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    with Endpoint(models, tmp_path / "log", "--workers", "2", TMPDIR=str(folder)) as endpoint:
        # From the first answer on, whichever worker has loaded the model first. One that has logged this need not be
        # ready yet, and without any other that is, the one that replaces it would refuse requests.
        statuses = {get(endpoint, "/predict/tiny", PIXELS)[0]}
        while answering(folder) < 2:
            statuses.add(get(endpoint, "/predict/tiny", PIXELS)[0])
        first = workers(endpoint)
        os.kill(min(first), signal.SIGKILL)
        eventually(lambda: not is_alive(min(first)), 60)
        while loads(endpoint, 1) < 3:
            statuses.add(get(endpoint, "/predict/tiny", PIXELS)[0])
        assert statuses == {200}


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_of_all_workers(models, tmp_path, second):
    with Endpoint(models, tmp_path / "log", "--workers", "2", "--drain", "600") as endpoint:
        eventually(lambda: loads(endpoint, 1) == 2, 60)
        endpoint.process.send_signal(signal.SIGTERM)
        eventually(lambda: get(endpoint, "/v2/health/ready")[0] == 503, 60)
        assert endpoint.stop(second) == 0


@pytest.mark.slow
def test_workers_stop_while_they_are_starting(models, tmp_path):
    with Endpoint(models, tmp_path / "log", "--workers", "3") as endpoint:
        # At least one has loaded the model; the others may still be starting.
        assert endpoint.stop() == 0


def test_workers_exit_when_their_supervisor_is_killed(models, tmp_path):
    with Endpoint(models, tmp_path / "log", "--workers", "2", TMPDIR=str(tmp_path)) as endpoint:
        left = workers(endpoint)
        assert endpoint.stop(signal.SIGKILL) == -signal.SIGKILL
        eventually(lambda: not any(map(is_alive, left)), 60)

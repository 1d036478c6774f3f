"""Separate processes, ended by the alarm, and tasks whose run is in a bucket."""

import signal
import subprocess
import sys
import tempfile

import pytest

from pipelines.core.errors import UserError
from pipelines.core.executor import JobError
from pipelines.core.url import Url
from pipelines.training.processes.task import run_of_task

START = "import time; from pipelines.training.processes.task import watchdog\n"


def run(code):
    return subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=False)


def test_a_hung_process_is_ended_and_says_where():
    ended = run("def stuck(): time.sleep(600)\nwith watchdog(0.2) as reset: reset(); stuck()")
    assert ended.returncode == -signal.SIGALRM
    assert "in stuck" in ended.stderr


def test_a_working_process_is_never_ended_nor_one_that_has_not_begun_or_is_done():
    steps = "for _ in range(8): time.sleep(0.1); reset()"
    ended = run(f"with watchdog(0.5) as reset:\n    time.sleep(0.8)\n    {steps}\ntime.sleep(0.8)\nprint('done')")
    assert (ended.returncode, ended.stdout) == (0, "done\n")


@pytest.fixture
def place(monkeypatch, tmp_path):
    """The URL of a run on fsspec's file system in memory; copies are in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Url(f"memory://{tmp_path.name}/searches/demo/trials/0")


def use(place, error=None, taken_by=None):
    """Performs a task that writes a file, and may fail or be taken over."""
    with run_of_task(place, "search.json") as run:
        run.mkdir()
        (run / "file").write_text("content")
        if taken_by:
            place.with_name(".0.owner").write_bytes(taken_by)
        if error:
            raise error


def test_the_failure_of_a_run_in_a_bucket_is_no_failure_of_the_machine(place):
    error = UserError("dead gates")
    with pytest.raises(UserError, match="dead gates") as raised:
        use(place, error)
    assert raised.value is error
    assert (place / "file").read_text() == "content"


def test_a_machine_that_cannot_use_the_store_ends_all_tasks(place):
    with pytest.raises(JobError, match="nowhere:// has a protocol that fsspec does not open"):
        use(Url("nowhere://bucket/searches/demo/trials/0"))
    # The end of a run is an upload.
    with pytest.raises(JobError, match="has been taken over by another machine: nothing more is uploaded"):
        use(place, taken_by=b"another machine")
    with pytest.raises(JobError, match=r"dead gates In addition, .* has been taken over"):
        use(place, UserError("dead gates"), taken_by=b"another machine")

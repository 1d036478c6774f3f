"""Separate processes, ended by the alarm."""

import signal
import subprocess
import sys

START = "import time; from pipelines.training.processes.task import watchdog\n"


def run(code):
    return subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=False)


def test_a_hung_process_is_ended_and_says_where():
    ended = run("def stuck(): time.sleep(600)\nwith watchdog(0.2): stuck()")
    assert ended.returncode == -signal.SIGALRM
    assert "in stuck" in ended.stderr


def test_a_working_process_is_never_ended_nor_what_it_does_afterwards():
    steps = "for _ in range(8): time.sleep(0.1); reset()"
    ended = run(f"with watchdog(0.5) as reset:\n    {steps}\ntime.sleep(0.8)\nprint('done')")
    assert (ended.returncode, ended.stdout) == (0, "done\n")

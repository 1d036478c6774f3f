import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from rich.console import Console

from pipelines.core.errors import StoppedError
from pipelines.core.signals import SIGNALS, noted, raised

# Busy with something long that does not return to Python.
PROGRAM = """
import sys, time
from rich.console import Console
from pipelines.core.signals import noted
with noted(Console()):
    print("ready", flush=True)
    time.sleep(600)
"""

# As the first process of a container, before training.
FIRST = """
import os, time
from pipelines.core.guard import guarded
def act():
    print("ready", os.getpid(), flush=True)
    time.sleep(600)
guarded("highway", act)
"""

# Shows progress on a terminal until it is asked to stop, and then saves.
SAVES = """
import os, sys, time
from pathlib import Path
from rich.console import Console
from pipelines.core.signals import noted
# The first terminal that the leader of a session opens becomes that of the session.
os.open(sys.argv[2], os.O_RDWR)
console = Console()
with noted(console) as stop:
    while not stop.by:
        # All the time, to meet the moment between the closing of the terminal and its signal.
        console.print("step")
    console.print("saving")
    Path(sys.argv[1]).write_text(stop.by.name)
"""


@pytest.fixture(autouse=True)
def _heard():
    """Under `nohup`, SIGHUP is ignored, also by processes that a test starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def wait_for(stop):
    while not stop.by:
        time.sleep(0.01)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted(number):
    console = Console(file=io.StringIO(), width=200)
    before = [signal.getsignal(one) for one in SIGNALS]
    with noted(console) as stop:
        assert stop.by is None
        signal.raise_signal(number)
        wait_for(stop)
        assert stop.by == number
    assert [signal.getsignal(one) for one in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert console.file.getvalue() == f"{number.name}: finishes the step and saves; a second signal ends at once\n"
    assert "signals" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_process_of_a_container_ends_too(number):
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system creates no PID namespaces for this user")
    command = [*unshare, sys.executable, "-c", FIRST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outside:
        try:
            assert outside.stdout.readline() == "ready 1\n"
            (first,) = psutil.Process(outside.pid).children()
            first.send_signal(number)
            assert outside.wait(60) == 128 + number
        finally:
            # With its first process, which no other signal ends, the namespace ends.
            for process in psutil.Process(outside.pid).children() if outside.poll() is None else ():
                process.kill()


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_ends_the_process_though_it_is_busy(number):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        noted = f"{number.name}: finishes the step and saves; a second signal ends at once\n"
        assert process.stdout.readline() == noted
        assert process.poll() is None
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}: ends at once\n"
        assert process.wait() == 128 + number


def test_a_signal_is_raised_through_code_that_goes_on_whatever_the_error():
    def import_package():
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception:
            pytest.fail("the signal is lost")

    with pytest.raises(StoppedError), raised():
        import_package()


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted(Console(file=io.StringIO())) as stop:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            wait_for(stop)
        assert stop.by == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_signals_are_left_alone():
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with noted(Console(file=io.StringIO())) as stop:
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGTERM)
            wait_for(stop)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard
    assert stop.by == signal.SIGTERM


def test_in_another_thread_nothing_is_changed():
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def train():
        with noted(Console()) as stop:
            found.extend([stop.by, signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found == [None, before]


def test_a_closed_terminal_does_not_prevent_saving(tmp_path):
    saved = tmp_path / "saved"
    terminal, other_end = pty.openpty()
    words = [sys.executable, "-c", SAVES, str(saved), os.ttyname(other_end)]
    with subprocess.Popen(words, stdout=other_end, stderr=other_end, start_new_session=True) as process:
        os.close(other_end)
        while b"step" not in os.read(terminal, 1000):
            pass
        os.close(terminal)
        assert process.wait(60) == 0
    assert saved.read_text() == "SIGHUP"

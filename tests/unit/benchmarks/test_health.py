"""Times of the health answer, without the waiting of the process that asks."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from benchmarks import health

DELAY = 0.05


@pytest.fixture
def taken():
    """Returns the milliseconds of one answer, which takes 50."""
    here, there = multiprocessing.Pipe()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            here.send("stop")
            time.sleep(DELAY)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    def ask():
        health._ask(server.server_address, there)
        assert here.recv() == "started"
        (found,) = here.recv()
        return found

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield ask
        server.shutdown()


def test_the_waiting_of_the_asking_process_is_subtracted(taken, monkeypatch):
    waited = iter([7.0, 1007.0])
    monkeypatch.setattr(health, "_waited", lambda _: next(waited))
    assert taken() < 1000 * DELAY - 900


def test_other_systems_do_not_count_it(taken, monkeypatch, tmp_path):
    monkeypatch.setattr(health, "_SCHEDULED", tmp_path / "schedstat")
    assert taken() >= 1000 * DELAY


@pytest.mark.skipif(not health._SCHEDULED.exists(), reason="this system does not count the time without a core")
def test_sharing_a_core_is_waiting_and_sleeping_is_not():
    file, cores = os.open(health._SCHEDULED, os.O_RDONLY), os.sched_getaffinity(0)

    def waiting(act):
        before = health._waited(file)
        act()
        return health._waited(file) - before

    def compute():
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            slept = waiting(lambda: time.sleep(0.5))
            for one in (0, other.pid):
                os.sched_setaffinity(one, {min(cores)})
            assert slept < waiting(compute) < 10_000
        finally:
            other.kill()
            os.sched_setaffinity(0, cores)
            os.close(file)

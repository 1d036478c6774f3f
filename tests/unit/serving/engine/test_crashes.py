"""Versions whose graph crashes a worker after its smoke test, or never ends."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from serving import manifest
from serving.engine.backends import InProcessBackend
from serving.engine.crashes import Crashes, Watchdog
from serving.engine.settings import Settings
from serving.errors import ModelError
from tests import tiny_model
from tests.endpoint import ROOT, eventually

# Each worker ends once, and its replacement knows why; the third one ends the supervisor.
WORKERS = """
import os, signal, socket, sys, time
from serving.engine.crashes import Crashes, Watchdog
from serving.endpoint.workers import metrics_folder, supervise
from serving.engine.readiness import Readiness

crashes = Crashes(2)

def crash(_):
    os.kill(os.getpid(), signal.SIGSEGV)

def endless(_):
    while True:
        time.sleep(1)

def work():
    if crashes.caused_by("demo/1 a"):
        crashes.attribute("demo/2 b", len)([])
        print("refused", flush=True)
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    crashes.attribute("demo/1 a", Watchdog(0.2).limit("demo/1 a", globals()[sys.argv[1]]))(None)

with metrics_folder():
    supervise(work, 2, crashes, Readiness(2), socket.socket())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
@pytest.mark.parametrize("how", ["crash", "endless"])
def test_a_replaced_worker_refuses_the_version_that_ended_the_one_before(how):
    command = [sys.executable, "-c", WORKERS, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("refused")


def test_a_closed_watchdog_ends_its_thread():
    before, watchdog = set(threading.enumerate()), Watchdog(0.1)
    watchdog.limit("demo/1 a", len)("x")
    (thread,) = set(threading.enumerate()) - before
    watchdog.close()
    eventually(lambda: not thread.is_alive())


def test_only_versions_that_are_predicting_count_and_only_in_a_crash():
    crashes, seen = Crashes(3), []
    crashes.enter(2)

    def ended(how):
        seen.append(crashes.collect(2, how))

    crashes.attribute("demo/1 a", len)([])
    crashes.attribute("demo/2 b", ended)(-signal.SIGKILL)
    crashes.attribute("demo/3 c", lambda _: crashes.collect(0, -signal.SIGSEGV))(0)
    crashes.attribute("demo/4 d", ended)(-signal.SIGABRT)
    assert seen == [[], ["demo/4 d"]]
    assert [crashes.caused_by(f"demo/{one}") for one in ("1 a", "2 b", "3 c", "4 d")] == [False, False, False, True]


def test_the_backend_refuses_a_crashing_version_until_its_graph_changes(tmp_path):
    folder, crashes, predicting = tiny_model.write(tmp_path / "tiny" / "1"), Crashes(1), []
    backend = InProcessBackend(Settings(tmp_path, crashes=crashes), None, lambda _: lambda *_: None)

    class Crashing:
        @property
        def dtype(self):
            predicting.extend(crashes.collect(0, -signal.SIGSEGV))
            raise ProcessLookupError

    with pytest.raises(ProcessLookupError):
        backend.open(folder).batcher.run(Crashing())
    digest = manifest.read(folder).files[manifest.ONNX].sha256
    assert predicting == [f"tiny/1 {digest}"]
    with pytest.raises(ModelError, match="a worker process crashed while it was predicting with"):
        backend.open(folder)
    shutil.rmtree(folder)
    assert backend.open(tiny_model.write(folder, seed=1)).manifest.version == 1
    backend.children.close()

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import serving
from serving.engine.processes import NICE, ChildProcesses, EndedError, Offload, TimeLimitError
from serving.errors import BusyError, RequestError
from serving.protocols.request import decode_base64
from tests.endpoint import eventually


@pytest.fixture
def offload():
    made = Offload(1)
    yield made
    made.close()


def test_arguments_results_and_errors_pass_between_processes(offload):
    async def both():
        inside = await offload.run(os.getpid)
        assert inside != os.getpid()
        # The same process is used again; bytes and arrays are passed separately from the rest.
        assert await offload.run(os.getpid) == inside
        found = await offload.run(np.frombuffer, b"\x01\x02", np.uint8)
        np.testing.assert_array_equal(found, [1, 2])
        np.testing.assert_array_equal(await offload.run(np.add, found, found), [2, 4])
        # An error of the function is raised here, and does not affect other calls.
        with pytest.raises(RequestError, match="is not base64"):
            await offload.run(decode_base64, "?")
        assert await offload.run(os.getpid) == inside

    asyncio.run(both())


def test_an_error_does_not_keep_its_arguments_alive():
    children, given = ChildProcesses(), np.full(9, 255, np.uint8)
    kept = weakref.ref(given)
    gc.disable()
    try:
        with contextlib.suppress(RequestError):
            children.call(decode_base64, given)
        del given
        assert kept() is None
    finally:
        gc.enable()
        children.close()


def test_a_process_has_a_group_of_its_own_in_the_same_session():
    # Ctrl-C goes to a group, and nice values count within a session.
    children = ChildProcesses()
    assert children.call(os.getpgid, 0) != os.getpgid(0)
    assert children.call(os.getsid, 0) == os.getsid(0)
    children.close()


def test_a_process_has_a_lower_priority_before_it_imports_anything(monkeypatch, tmp_path):
    first = tmp_path / "serving" / "__init__.py"
    first.parent.mkdir()
    first.write_text(f"import os\nos.environ['FOUND'] = str(os.nice(0))\n__path__ = {[*serving.__path__]!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    children = ChildProcesses(nice=3)
    # 19 is the maximum.
    assert int(children.call(os.getenv, "FOUND")) == children.call(os.nice, 0) == min(os.nice(0) + 3, 19)
    children.close()


def test_expensive_requests_give_way_to_the_event_loop(offload):
    assert asyncio.run(offload.run(os.nice, 0)) == min(os.nice(0) + NICE, 19)


def test_a_killed_process_is_replaced(offload):
    async def killed():
        first = await offload.run(os.getpid)
        os.kill(first, signal.SIGKILL)
        return first, await offload.run(os.getpid)

    first, second = asyncio.run(killed())
    assert first != second


def test_a_call_whose_process_is_killed_twice_may_be_retried_later(offload):
    with pytest.raises(BusyError, match="was killed"):
        asyncio.run(offload.run(os._exit, 1))


def test_why_a_call_ended_is_told():
    children = ChildProcesses(seconds=20.0)
    children.call(os.getpid)
    with pytest.raises(EndedError) as ended:
        children.call(signal.raise_signal, signal.SIGSEGV)
    assert ended.value.status == -signal.SIGSEGV
    children.close()
    children = ChildProcesses(seconds=0.1)
    with pytest.raises(TimeLimitError) as ended:
        children.call(time.sleep, 600)
    assert ended.value.seconds == 0.1
    children.close()


def test_closing_leaves_nothing_behind():
    async def close():
        offload = Offload(2)
        inside = await offload.run(os.getpid)
        long = asyncio.ensure_future(offload.run(time.sleep, 60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(offload.close)
        with pytest.raises(BusyError):
            await long
        return inside

    inside = asyncio.run(close())
    with pytest.raises(ProcessLookupError):
        os.kill(inside, 0)


# A call that does not end does not notice that its pipe has been closed.
ENDLESS = "import os, time; os.kill(os.getppid(), 9); time.sleep(30)"


@pytest.mark.parametrize("last", ["os.kill(os.getpid(), 9)", f"children.call(exec, {ENDLESS!r})"])
def test_a_child_ends_with_its_parent(last):
    program = (
        "import os\nfrom serving.engine.processes import ChildProcesses\nchildren = ChildProcesses()\n"
        f"print(children.call(os.getpid), flush=True)\n{last}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)

    def is_gone():
        try:
            os.kill(int(done.stdout), 0)
        except ProcessLookupError:
            return True
        return False

    eventually(is_gone)

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving import memory
from serving.engine.processes import ChildProcesses


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

FREED = """
import numpy as np
from serving import memory
from tests.unit.serving.test_memory import resident

def measure():
    array = np.ones({size})
    held = resident()
    del array
    print(held - resident())

{call}
{run}
"""


@needs_glibc
@pytest.mark.parametrize(
    ("run", "size"),
    [
        ("measure()", 10**7),
        # Threads have heaps of their own, of at most 64 MB.
        ("from threading import Thread; Thread(target=measure).start()", 6 * 10**6),
    ],
)
@pytest.mark.parametrize("call", ["", "memory.keep_freed()"])
def test_a_process_can_keep_large_arrays_that_it_freed(run, size, call):
    returned = 0 if call else 8 * size
    script = FREED.format(call=call, run=run, size=size)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert int(found) == pytest.approx(returned, abs=1e6)


@needs_glibc
def test_free_memory_is_returned_to_the_system():
    # Small enough to come from the heap; the last one keeps it from shrinking by itself.
    arrays = [np.ones(8192) for _ in range(1600)]
    last = arrays.pop()
    del arrays
    before = resident()
    memory.give_back()
    assert before - resident() > 80e6
    assert last.sum() == 8192


@needs_glibc
@pytest.mark.parametrize("given", [None, "glibc.malloc.arena_max=1"])
def test_a_decoding_process_takes_large_arrays_from_huge_pages(given, monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", given) if given else monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    children = ChildProcesses()
    try:
        tunables = children.call(os.getenv, "GLIBC_TUNABLES")
    finally:
        children.close()
    assert tunables.split(":") == [*([given] if given else []), "glibc.malloc.hugetlb=1"]

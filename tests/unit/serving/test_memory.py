import platform
from pathlib import Path

import numpy as np
import pytest

from serving import memory


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_free_memory_is_returned_to_the_system():
    # Small enough to come from the heap; the last one keeps it from shrinking by itself.
    arrays = [np.ones(8192) for _ in range(1600)]
    last = arrays.pop()
    del arrays
    before = resident()
    memory.give_back()
    assert before - resident() > 80e6
    assert last.sum() == 8192

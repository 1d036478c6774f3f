import os

import pytest

from serving.engine.settings import cores

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("50000 100000\n", 1), ("100000 100000", 1), ("9999900000 100000", HERE), ("max 100000\n", HERE), (None, HERE)],
)
def test_cores_that_a_container_may_use(tmp_path, quota, expected):
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    assert cores(file) == expected

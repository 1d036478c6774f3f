"""Data sets prepared by several processes at the same time."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_processes_can_prepare_the_same_data_set_at_once(tmp_path):
    prepare = [sys.executable, "-m", "pipelines", "data", "prepare", "mnist_5k", "--data-dir", str(tmp_path)]
    started = [subprocess.Popen(prepare, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in started:
        out, err = process.communicate()
        assert process.returncode == 0, err.decode()
        assert out.decode() == f"mnist_5k is ready in {tmp_path / 'mnist_5k' / '1.0.0'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mnist_5k"]

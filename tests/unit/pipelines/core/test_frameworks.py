import os
import subprocess
import sys

import pytest

LOAD = """
import gc, sys
from pipelines.core import frameworks
frameworks.load()
print(sorted({'keras', 'tensorflow'} & set(sys.modules)), gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def load(**environment):
    return subprocess.run(
        [sys.executable, "-c", LOAD], check=False, capture_output=True, text=True, env=os.environ | environment
    )


def test_frameworks_load_silently_and_outside_of_garbage_collection():
    done = load()
    assert done.stdout == "['keras', 'tensorflow'] True True\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("backend", "imported"), [("tensorflow", []), ("jax", ["jax"])])
@pytest.mark.slow
def test_modules_that_are_not_needed_at_once_can_be_imported_later(backend, imported):
    code = """
import sys
from pipelines.core import frameworks
frameworks.load()
print(sorted({*frameworks.UNUSED, *frameworks.UNUSED_BY_TENSORFLOW} & set(sys.modules)))
import jax, matplotlib, pandas, sklearn
"""
    environment = os.environ | {"KERAS_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == f"{imported}\n"


def test_a_failed_import_is_not_silenced():
    done = load(KERAS_BACKEND="nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, len(os.sched_getaffinity(0))),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, 4),
    ],
)
def test_jax_treats_each_cpu_core_as_a_device(monkeypatch, environment, expected):
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    code = "from pipelines.core import frameworks; frameworks.load(); import jax; print(jax.device_count())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment | {"KERAS_BACKEND": "jax"},
    )
    assert int(done.stdout) == expected

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from pipelines.core import frameworks

LOAD = """
import gc, sys
from pipelines.core import frameworks
frameworks.load()
print(sorted({'keras', 'tensorflow'} & set(sys.modules)), gc.isenabled(), gc.get_freeze_count() > 100_000)
import keras
print(keras.config.floatx(), keras.config.image_data_format())
"""


def load(**environment):
    return subprocess.run(
        [sys.executable, "-c", LOAD], check=False, capture_output=True, text=True, env=os.environ | environment
    )


def test_frameworks_load_silently_outside_of_garbage_collection_and_as_recipes_expect(tmp_path):
    (tmp_path / "keras.json").write_text('{"floatx": "float16", "image_data_format": "channels_first"}')
    done = load(KERAS_HOME=str(tmp_path))
    assert done.stdout == "['keras', 'tensorflow'] True True\nfloat32 channels_last\n"
    assert done.stderr == ""


def test_an_interruption_while_loading_shows_nothing_of_it(capfd):
    def interrupted():
        os.write(2, b"a message of a framework")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), frameworks.hushed():
        interrupted()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("terminal", "shown"), [(True, True), (False, False)])
def test_loading_is_shown_on_terminals(terminal, shown, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    console = Console(file=io.StringIO(), force_terminal=terminal)
    with frameworks._announced(console):
        pass
    assert ("loading Keras and TensorFlow" in console.file.getvalue()) == shown


@pytest.mark.parametrize(("backend", "imported"), [("tensorflow", []), ("jax", ["jax", "scipy"])])
@pytest.mark.slow
def test_modules_that_are_not_needed_at_once_can_be_imported_later(backend, imported):
    code = """
import os, sys
from pipelines.core import frameworks
frameworks.load()
print(sorted({*frameworks.UNUSED, *frameworks.UNUSED_BY_TENSORFLOW} & set(sys.modules)))
import jax, matplotlib, pandas, scipy.optimize, sklearn
print(jax.device_count(), os.environ.get("JAX_NUM_CPU_DEVICES"))
"""
    environment = os.environ | {"KERAS_BACKEND": backend}
    del environment["JAX_NUM_CPU_DEVICES"]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    # On JAX, each core is a device. Processes that this one starts may have another number of cores.
    devices = len(os.sched_getaffinity(0)) if backend == "jax" else 1
    assert done.stdout == f"{imported}\n{devices} None\n"


def test_a_failed_import_is_not_silenced():
    done = load(KERAS_BACKEND="nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr


@pytest.mark.parametrize(
    "given", [{"JAX_NUM_CPU_DEVICES": "3"}, {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}]
)
def test_a_number_of_devices_that_the_user_has_set_is_left_alone(monkeypatch, given):
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    frameworks.load()
    assert dict(os.environ) == before

import io
import os
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.signals import SIGNALS

LOAD = """
import gc, os, sys
from pipelines.core import frameworks
frameworks.load()
print(sorted({'keras', 'tensorflow'} & set(sys.modules)), gc.isenabled(), gc.get_freeze_count() > 100_000)
import keras
print(keras.config.floatx(), keras.config.image_data_format())
# The rest is not what is measured.
gc.disable()
print(sorted({*frameworks.UNUSED, *frameworks.UNUSED_BY_TENSORFLOW} & set(sys.modules)))
import jax, matplotlib, pandas, sklearn
print(jax.device_count(), os.environ.get("JAX_NUM_CPU_DEVICES"))
"""


def load(**environment):
    return subprocess.run(
        [sys.executable, "-c", LOAD], check=False, capture_output=True, text=True, env=os.environ | environment
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_until_the_frameworks_are_imported(number):
    def stop(*_):
        raise InterruptedError

    imported = []

    def load():
        with frameworks._uninterrupted():
            # Another thread gets it.
            thread = threading.Thread(target=signal.raise_signal, args=(number,))
            thread.start()
            thread.join()
            imported.append("keras")

    before = signal.signal(number, stop)
    try:
        with pytest.raises(InterruptedError):
            load()
        assert imported
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("backend", "imported"), [("tensorflow", []), pytest.param("jax", ["jax"], marks=pytest.mark.slow)]
)
def test_frameworks_load_silently_outside_of_garbage_collection_and_as_recipes_expect(
    backend, imported, tmp_path, monkeypatch
):
    (tmp_path / "keras.json").write_text('{"floatx": "float16", "image_data_format": "channels_first"}')
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    done = load(KERAS_HOME=str(tmp_path), KERAS_BACKEND=backend)
    # On JAX, each core is a device. Processes that this one starts may have another number of cores.
    devices = len(os.sched_getaffinity(0)) if backend == "jax" else 1
    assert done.stdout.splitlines() == [
        "['keras', 'tensorflow'] True True",
        "float32 channels_last",
        # What is not needed at once can be imported later.
        f"{imported}",
        f"{devices} None",
    ]
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


def test_a_failed_import_is_not_silenced():
    done = load(KERAS_BACKEND="nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr


@pytest.mark.parametrize(
    "given", [{"JAX_NUM_CPU_DEVICES": "3"}, {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}]
)
def test_a_number_of_devices_that_the_user_has_set_is_left_alone(monkeypatch, given):
    # The first import of TensorFlow sets variables of its own.
    frameworks.load()
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    frameworks.load()
    assert dict(os.environ) == before


def test_tensorflow_uses_onednn_unless_the_user_has_decided(monkeypatch):
    for given, used in ((None, "1"), ("0", "0")):
        monkeypatch.delenv(frameworks.ONEDNN_VARIABLE, raising=False)
        if given:
            monkeypatch.setenv(frameworks.ONEDNN_VARIABLE, given)
        frameworks.load()
        assert os.environ[frameworks.ONEDNN_VARIABLE] == used

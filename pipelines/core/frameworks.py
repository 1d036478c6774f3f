"""Imports the frameworks without their log messages, and without packages that nothing here uses."""

import gc
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console

from pipelines.core import environment
from pipelines.core.signals import handled
from serving import memory

DEVICES_VARIABLE = "JAX_NUM_CPU_DEVICES"
# The older name of this setting; JAX refuses both together.
DEVICES_FLAG = "xla_force_host_platform_device_count"
# Keras imports these at its start if they are installed, for parts that nothing here uses.
UNUSED = ("matplotlib", "pandas", "sklearn")
# TensorFlow's convolutions are faster with oneDNN, which it leaves out on CPUs with AVX2 only.
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
# TensorFlow imports it for a TensorFlow Lite converter.
UNUSED_BY_TENSORFLOW = ("jax",)


def load(devices: int = 1, console: Console | None = None) -> None:
    """Imports TensorFlow and Keras; called once the arguments of a command are checked.

    During its import, some of TensorFlow's log messages ignore TF_CPP_MIN_LOG_LEVEL (tensorflow 100442). They are shown
    only if the import fails.

    On JAX, the CPU is split into one device per core, which `pipelines.training.steps_per_execution` needs. On
    TensorFlow, it is split if several devices are needed and there is no GPU. The process keeps freed memory.

    Args:
        devices: minimum number of devices.
        console: terminal on which to show a progress message; None shows none.
    """
    chooses = DEVICES_VARIABLE not in os.environ and DEVICES_FLAG not in os.environ.get("XLA_FLAGS", "")
    if chooses:
        os.environ[DEVICES_VARIABLE] = str(max(devices, environment.cores()))
    on_tensorflow = os.environ.get("KERAS_BACKEND") == "tensorflow"
    memory.keep_freed()
    os.environ.setdefault(ONEDNN_VARIABLE, "1")
    with _announced(console), hushed(), _uncollected(), _uninterrupted():
        with _hidden((*UNUSED, *UNUSED_BY_TENSORFLOW) if on_tensorflow else UNUSED):
            import keras
        import tensorflow as tf
    if chooses:
        # JAX has read it, and processes that this one starts may have another number of cores.
        del os.environ[DEVICES_VARIABLE]
    # A user's keras.json must not change what a recipe computes.
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    if on_tensorflow and devices > 1 and not tf.config.list_physical_devices("GPU"):
        parts = [tf.config.LogicalDeviceConfiguration()] * devices
        # Too late if the process has computed before; the devices are then counted when they are used.
        with suppress(RuntimeError):
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)


@contextmanager
def _announced(console: Console | None) -> Iterator[None]:
    if console is None or not console.is_terminal or "tensorflow" in sys.modules:
        yield
        return
    with console.status("loading Keras and TensorFlow"):
        yield


@contextmanager
def _hidden(packages: Sequence[str]) -> Iterator[None]:
    """Hides packages that are not imported yet: in the block they seem not to be installed."""
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]  # None stands for "missing"
    hidden = [name for name in packages if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Exempts objects imported in the block from garbage collection, on the first import of TensorFlow.

    The frameworks create half a million permanent objects. Searching them for cycles would slow down the import, every
    later full collection, and the end of the process (docs/log.md, 2026-11-24).
    """
    if "tensorflow" in sys.modules:
        yield
        return
    collects = gc.isenabled()
    # Otherwise existing garbage would be exempt as well.
    gc.collect()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if collects:
            gc.enable()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds signals back until the block ends.

    Frameworks drop any error while they are imported, also one that a signal raises, or raise another in its place.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals do not interrupt other threads.
        yield
        return
    came: list[signal.Signals] = []
    try:
        # Masks of threads would not do: Python runs handlers in this one, whichever gets the signal.
        with handled(came.append):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def hushed(descriptor: int = 2) -> Iterator[None]:
    """Shows messages of C++ code in the block only if it fails.

    Args:
        descriptor: file descriptor of the output, which C++ writes to without `sys.stdout` or `sys.stderr`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    shown = os.dup(descriptor)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), descriptor)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(shown, held.read())
            raise
        finally:
            os.dup2(shown, descriptor)
            os.close(shown)


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Limits a logger to errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

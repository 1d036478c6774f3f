"""Imports the frameworks without their notes and without packages that nothing here uses."""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelines.core import environment

# The older name of the same setting; JAX refuses both together.
DEVICES_FLAG = "xla_force_host_platform_device_count"
# Keras imports them at its start if they are installed, for parts that nothing here uses. That takes 1.2 s.
UNUSED = ("matplotlib", "pandas", "sklearn")
# TensorFlow imports it for a converter of TensorFlow Lite. That takes 0.6 s.
UNUSED_BY_TENSORFLOW = ("jax",)


def load() -> None:
    """Imports TensorFlow and Keras; called once the arguments of a command are checked.

    Some of TensorFlow's notes ignore TF_CPP_MIN_LOG_LEVEL during its import (tensorflow 100442). They are shown only if
    the import fails.

    On JAX a CPU becomes one device per core, as `pipelines.training.many_steps` needs.
    """
    if DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(environment.cores()))
    on_tensorflow = os.environ.get("KERAS_BACKEND") == "tensorflow"
    with _hushed(), _uncollected():
        with _hidden((*UNUSED, *UNUSED_BY_TENSORFLOW) if on_tensorflow else UNUSED):
            import keras  # noqa: F401
        import tensorflow  # noqa: F401


@contextmanager
def _hidden(packages: Sequence[str]) -> Iterator[None]:
    """Hides packages that were not imported before: in the block they seem not to be installed."""
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
    """Exempts what is imported in the block from garbage collection, on the first import of TensorFlow.

    The frameworks make half a million objects that stay. Searching them for cycles takes a fifth of their import, 0.2 s
    in every full collection after it, and 0.5 s when the process ends.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    collects = gc.isenabled()
    # Garbage of before would otherwise be exempt as well.
    gc.collect()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if collects:
            gc.enable()


@contextmanager
def _hushed() -> Iterator[None]:
    # The notes come from C++, which bypasses sys.stderr: the file descriptor itself has to be redirected.
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(shown, held.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Limits the logger of that name to errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

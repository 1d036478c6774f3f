"""The first import of TensorFlow, without what it writes to the terminal before it reads its own log settings."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelines.core import environment

# The older way to say the same, which JAX refuses to hear twice.
DEVICES_FLAG = "xla_force_host_platform_device_count"
# What Keras imports at its start if it is installed, for parts of Keras that nothing here uses. It takes 1.2 s.
UNUSED = ("matplotlib", "pandas", "sklearn")
# What TensorFlow imports for a converter of TensorFlow Lite. It takes 0.6 s.
UNUSED_BY_TENSORFLOW = ("jax",)


def load() -> None:
    """Imports TensorFlow and Keras; a verb calls this once its arguments are read and before it works.

    Some of TensorFlow's notes escape TF_CPP_MIN_LOG_LEVEL while it is imported (tensorflow 100442). They are held back
    here, and shown only if the import fails.

    On JAX a CPU becomes one device for each core, as `pipelines.training.many_steps` needs it.
    """
    if DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(environment.cores()))
    on_tensorflow = os.environ.get("KERAS_BACKEND") == "tensorflow"
    with _hushed():
        with _hidden((*UNUSED, *UNUSED_BY_TENSORFLOW) if on_tensorflow else UNUSED):
            import keras  # noqa: F401
        import tensorflow  # noqa: F401


@contextmanager
def _hidden(packages: Sequence[str]) -> Iterator[None]:
    """In the block packages that were not imported before seem not to be installed."""
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]  # None stands for "not there"
    hidden = [name for name in packages if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


@contextmanager
def _hushed() -> Iterator[None]:
    # The notes come from C++, which knows nothing of sys.stderr: the file descriptor itself must be turned.
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
    """Keeps a logger to errors.

    Args:
        name: of the logger.
    """
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

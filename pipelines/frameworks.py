"""The first import of TensorFlow, without what it writes to the terminal before it reads its own log settings."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines import environment

# The older way to say the same, which JAX refuses to hear twice.
DEVICES_FLAG = "xla_force_host_platform_device_count"


def load() -> None:
    """Imports TensorFlow and Keras; a verb calls this once its arguments are read and before it works.

    Some of TensorFlow's notes escape TF_CPP_MIN_LOG_LEVEL while it is imported (tensorflow 100442). They are held back
    here, and shown only if the import fails.

    On JAX a CPU becomes one device for each core, as `pipelines.training.many_steps` needs it.
    """
    if DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(environment.cores()))
    with _hushed():
        import keras  # noqa: F401
        import tensorflow  # noqa: F401


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

"""Entry point of processes: sets the environment and reports user errors in one message.

Imports nothing but the standard library.
"""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec

from pipelines.core.errors import StoppedError, UserError, disk_is_full

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow's messages about the CPU and missing GPUs
    "ABSL_MIN_LOG_LEVEL": "2",
    "GRPC_VERBOSITY": "ERROR",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime sends data as soon as it is imported
}
"""Defaults, set before any framework is imported."""
BACKENDS = ("tensorflow", "jax")
"""Backends of Keras that commands run on; the library runs on PyTorch too."""


def guarded(program: str, action: Callable[[], None]) -> int:
    """Sets the environment, runs an action and reports user errors in one message.

    Args:
        program: prefix of the message.
        action: the action.

    Returns:
        The exit status: 0 on success; 2 for a user error or a full disk; 75 if a process of the same run is lost; 130
        when interrupted; 143 after SIGTERM if the action handles it. A bug shows its stack trace and exits with status
        1; a command whose output pipe is closed exits with status 1 silently.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _open_outputs()
    try:
        action()
        sys.stdout.flush()
    except UserError as error:
        return _fail(program, str(error), error.status)
    except StoppedError as stopped:
        sys.stderr.write(f"{program}: {stopped}\n")
        return 128 + stopped.number
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{program}: interrupted\n")
        return 130
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:
        full = disk_is_full(error)
        if not full:
            raise
        _discard_output()
        return _fail(program, f"the disk is full ({full}). Free some space or name another folder, and repeat.")
    return 0


def check_backend() -> None:
    """Raises a `UserError` if KERAS_BACKEND names a backend that commands do not run on, or that is not installed.

    Called first, because some commands start processes or write a folder before they compute anything.
    """
    backend = os.environ["KERAS_BACKEND"]
    if backend not in BACKENDS:
        raise UserError(f"KERAS_BACKEND must be {' or '.join(map(repr, BACKENDS))}, or unset. Received: {backend!r}.")
    if backend == "jax" and find_spec("jax") is None:
        raise UserError(
            'KERAS_BACKEND=jax needs JAX, which is not installed: pip install "highway-keras[jax]". '
            "Unset KERAS_BACKEND to use TensorFlow."
        )


def _fail(program: str, message: str, status: int = 2) -> int:
    sys.stderr.write(f"{program}: error: {message}\n")
    return status


def _open_outputs() -> None:
    """Discards all text written to an output that the shell has closed (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # The lowest free descriptor is that of the output; otherwise the next file that is opened would get it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _discard_output() -> None:
    # Python flushes stdout at exit, which would fail again.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

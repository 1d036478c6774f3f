"""Entry point of processes: sets the environment and reports user errors in one message.

Imports nothing but the standard library.
"""

import os
import signal
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
        The exit status: 0 on success; 2 for a user error, a full disk or a file without permission; 75 if a process of
        the same run is lost; 130 when interrupted; 143 after SIGTERM if the action handles it. A bug shows its stack
        trace and exits with status 1; a command whose output pipe is closed exits with status 1 silently.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _open_outputs()
    _end_by_signals()
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
        message = _explained(error)
        if not message:
            raise
        _discard_output()
        return _fail(program, message)
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


def _explained(error: Exception) -> str:
    """Returns the message for an error that the user can fix; an empty string for a bug."""
    if full := disk_is_full(error):
        return f"the disk is full ({full}). Free some space or name another folder, and repeat."
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}. Change its permissions, or name another path."
    return ""


def _fail(program: str, message: str, status: int = 2) -> int:
    sys.stderr.write(f"{program}: error: {message}\n")
    return status


def _end_by_signals() -> None:
    """Ends the first process of a container by SIGTERM and SIGHUP, which Linux drops if this process handles neither.

    Other processes end by default, and ignored signals stay ignored.
    """
    if os.getpid() != 1:
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, _: os._exit(128 + received))


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

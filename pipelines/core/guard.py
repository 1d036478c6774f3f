"""Where a process begins: sets the environment, and turns what a user can mend into one message.

Nothing heavier than the standard library is imported here.
"""

import os
import sys
from collections.abc import Callable

from pipelines.core.errors import StoppedError, UserError, disk_is_full

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow's notes on the CPU and on missing GPUs
    "ABSL_MIN_LOG_LEVEL": "2",
    "GRPC_VERBOSITY": "ERROR",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime sends data from its import on
}
"""Set before any framework is imported, unless the user has."""


def guarded(program: str, action: Callable[[], None]) -> int:
    """Sets the environment, acts, and turns what a user can mend into one message.

    Args:
        program: what stands before the message.
        action: what to do.

    Returns:
        The exit status: 0; 2 for a user's mistake or a full disk; 130 when interrupted, and 143 after SIGTERM where
        that is waited for. A bug keeps its stack trace and ends in status 1, as does, without a word, a command whose
        output nobody reads any more.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        action()
        sys.stdout.flush()
    except UserError as error:
        return _fail(program, str(error))
    except StoppedError as stopped:
        sys.stderr.write(f"{program}: {stopped}\n")
        return 128 + stopped.number
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{program}: interrupted\n")
        return 130
    except BrokenPipeError:
        _give_up_output()
        return 1
    except Exception as error:
        full = disk_is_full(error)
        if not full:
            raise
        _give_up_output()
        return _fail(program, f"the disk is full ({full}). Free some space, or name another folder, and repeat.")
    return 0


def _fail(program: str, message: str) -> int:
    sys.stderr.write(f"{program}: error: {message}\n")
    return 2


def _give_up_output() -> None:
    # Python flushes stdout once more at its end, and would complain there again.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

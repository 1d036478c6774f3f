"""The program `highway`: finds the verb, runs it, and turns a user's mistake into one message.

Nothing heavier than the standard library is imported here, so that `highway --help` answers at once.
"""

import importlib
import os
import sys
from collections.abc import Callable

from pipelines.errors import StoppedError, UserError, disk_is_full, unknown

VERBS = {
    "train": ("pipelines.train", "train the net of a recipe, or go on with a run that was stopped"),
    "tune": ("pipelines.tune", "search the hyperparameters of a recipe, with any number of workers"),
    "evaluate": ("pipelines.evaluate", "measure a run on the test images"),
    "analyze": ("pipelines.analyze", "read the gates of a trained net, and close its layers one by one"),
    "reproduce": ("pipelines.reproduce", "run a study: its tables and figures, beside the source's own numbers"),
    "export": ("pipelines.export", "write a version of a model: SavedModel, ONNX, labels, manifest"),
    "release": ("pipelines.release", "say which versions of a model are served, label them, configure TF Serving"),
    "serve": ("pipelines.serve", "answer predictions over HTTP, with a page to try them"),
    "predict": ("pipelines.predict", "classify images with an exported model"),
    "recipes": ("pipelines.recipes.verb", "list the recipes, or show the numbers of one and where they come from"),
    "data": ("pipelines.data.verb", "list data sets, prepare one, look at its images, measure its throughput"),
}

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow's notes on the CPU and on missing GPUs
    "ABSL_MIN_LOG_LEVEL": "2",
    "GRPC_VERBOSITY": "ERROR",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime sends data from its import on
}
"""Set before any framework is imported, unless the user has."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after `highway`; None takes them from the process.

    Returns:
        The exit status, as `guarded`.

    Example:
        main(["train", "demo"])
    """
    arguments = sys.argv[1:] if argv is None else argv
    program = f"highway {arguments[0]}" if arguments and arguments[0] in VERBS else "highway"
    return guarded(program, lambda: _dispatch(arguments))


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


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_help())
    elif arguments[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"highway {version('highway-keras')}\n")
    elif arguments[0] in VERBS:
        importlib.import_module(VERBS[arguments[0]][0]).main(arguments[1:])
    else:
        raise unknown("verb", arguments[0], VERBS)


def _help() -> str:
    verbs = "\n".join(f"  {verb:<10}{summary}" for verb, (_, summary) in VERBS.items())
    return f"""usage: highway VERB [ARGUMENT ...]
       highway VERB --help
       highway --version

Trains, measures, exports and uses highway networks.

{verbs}

A first run of a few minutes on real digits, with no download:
  highway train demo
"""


def _fail(program: str, message: str) -> int:
    sys.stderr.write(f"{program}: error: {message}\n")
    return 2


def _give_up_output() -> None:
    # Python flushes stdout once more at its end, and would complain there again.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

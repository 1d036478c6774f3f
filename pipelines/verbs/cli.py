"""The program `highway`: dispatches to its verbs.

Imports nothing but the standard library, so that `highway --help` answers at once.
"""

import importlib
import sys

from pipelines.core.errors import UserError, unknown
from pipelines.core.guard import check_backend, guarded
from pipelines.verbs import VERBS

WITHOUT_TENSORFLOW = ("predict", "release", "serve")
"""Verbs for which the extra `serving` is enough, except for data sets of TFDS,"""
FRAMEWORKS = ("jax", "keras", "tensorflow", "tensorflow_datasets", "torch")
"""which need some of these packages."""
OWN_PACKAGES = ("highway_keras", "pipelines", "serving")
"""Start of the names of packages that are always installed: a missing module in one of them is a bug."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after `highway`; None takes them from the process.

    Returns:
        The exit status, see `guarded`.

    Example:
        main(["train", "demo"])
    """
    arguments = sys.argv[1:] if argv is None else argv
    program = f"highway {arguments[0]}" if arguments and arguments[0] in VERBS else "highway"
    return guarded(program, lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_help())
    elif arguments[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"highway {version('highway-keras')}\n")
    elif arguments[0] in VERBS:
        _run(arguments[0], arguments[1:])
    else:
        raise unknown("verb", arguments[0], VERBS)


def _run(verb: str, words: list[str]) -> None:
    if verb not in WITHOUT_TENSORFLOW:
        check_backend()
    try:
        importlib.import_module(f"{__package__}.{verb}").main(words)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith(OWN_PACKAGES):
            raise
        extra = "serving" if verb in WITHOUT_TENSORFLOW and package not in FRAMEWORKS else "cpu"
        raise UserError(
            f"the package '{package}' is not installed. Without an extra, highway-keras is the library alone; this "
            f'verb needs: pip install "highway-keras[{extra}]"{"" if extra == "serving" else " ([gpu] for CUDA)"}'
        ) from error


def _help() -> str:
    verbs = "\n".join(f"  {verb:<12}{summary}" for verb, summary in VERBS.items())
    return f"""usage: highway VERB [ARGUMENT ...]
       highway VERB --help
       highway --version

Trains, evaluates, exports and serves highway networks.

{verbs}

A first run on real digits, which takes a few minutes and needs no download:
  highway train demo
"""

"""The program `highway`: dispatches to its verbs.

Imports nothing but the standard library, so that `highway --help` answers at once.
"""

import importlib
import sys

from pipelines.core.errors import unknown
from pipelines.core.guard import guarded

VERBS = {
    "train": "train the net of a recipe, or resume an interrupted run",
    "tune": "search the hyperparameters of a recipe, with any number of workers",
    "evaluate": "evaluate a run on the test split",
    "analyze": "analyze the gates of a trained net, and lesion its layers",
    "reproduce": "run a study: tables and figures next to the source's numbers",
    "export": "export a version of a model: SavedModel, ONNX, labels, manifest",
    "release": "choose and label the served versions of a model, and configure TF Serving",
    "serve": "serve predictions over HTTP, with a page to try them",
    "predict": "classify images with an exported model",
    "recipes": "list the recipes, or show the numbers of one and their sources",
    "data": "list data sets, prepare one, show its images, measure its throughput",
}
"""A summary of each verb, by the name of its module in this folder."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after `highway`; None takes those of the process.

    Returns:
        The exit status, as `guarded`.

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
        importlib.import_module(f"pipelines.verbs.{arguments[0]}").main(arguments[1:])
    else:
        raise unknown("verb", arguments[0], VERBS)


def _help() -> str:
    verbs = "\n".join(f"  {verb:<10}{summary}" for verb, summary in VERBS.items())
    return f"""usage: highway VERB [ARGUMENT ...]
       highway VERB --help
       highway --version

Trains, evaluates, exports and serves highway networks.

{verbs}

A first run on real digits, which takes a few minutes and needs no download:
  highway train demo
"""

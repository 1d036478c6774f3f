"""The program `highway`: finds the verb and runs it.

Nothing heavier than the standard library is imported here, so that `highway --help` answers at once.
"""

import importlib
import sys

from pipelines.core.errors import unknown
from pipelines.core.guard import guarded

VERBS = {
    "train": "train the net of a recipe, or go on with a run that was stopped",
    "tune": "search the hyperparameters of a recipe, with any number of workers",
    "evaluate": "measure a run on the test images",
    "analyze": "read the gates of a trained net, and close its layers one by one",
    "reproduce": "run a study: its tables and figures, beside the source's own numbers",
    "export": "write a version of a model: SavedModel, ONNX, labels, manifest",
    "release": "say which versions of a model are served, label them, configure TF Serving",
    "serve": "answer predictions over HTTP, with a page to try them",
    "predict": "classify images with an exported model",
    "recipes": "list the recipes, or show the numbers of one and where they come from",
    "data": "list data sets, prepare one, look at its images, measure its throughput",
}
"""What each verb does, by the name of its module in this folder."""


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

Trains, measures, exports and uses highway networks.

{verbs}

A first run of a few minutes on real digits, with no download:
  highway train demo
"""

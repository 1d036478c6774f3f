"""For maintainers: writes the net of a run into the package, with float16 weights.

python -m pipelines.verbs.pretrained RUN NAME
"""

import sys
from pathlib import Path

import tyro
from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.frozen import Frozen
from pipelines.core.guard import guarded
from pipelines.core.parsing import parse

PROGRAM = f"python -m {__package__}.pretrained"


class Arguments(Frozen):
    """Writes the net of a run into the package, for `from_preset(NAME, weights=True)` and `highway predict NAME`."""

    run: tyro.conf.Positional[Path]
    """An evaluated run with validation images, on which probabilities are calibrated."""
    name: tyro.conf.Positional[str]
    """Name of the model."""


def main(arguments: list[str]) -> None:
    """Writes the net and prints its folder.

    Args:
        arguments: the words after the program.

    Raises:
        UserError: see `pipelines.export.pretrained.write`.
    """
    given = parse(Arguments, arguments, PROGRAM, Arguments.__doc__ or "")
    frameworks.load(console=Console(stderr=True))
    from highway_keras.models.trained_weights import REPOSITORY
    from pipelines.export.pretrained import write

    sys.stdout.write(f"{write(given.run, REPOSITORY / given.name)}\n")


if __name__ == "__main__":
    sys.exit(guarded(PROGRAM, lambda: main(sys.argv[1:])))

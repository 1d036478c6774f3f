"""For maintainers: writes the net of a run into the package.

python -m pipelines.verbs.pretrained RUN NAME
python -m pipelines.verbs.pretrained --images    (after a change of the conversion of image files)
"""

import sys
from pathlib import Path

import tyro
from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.guard import guarded
from pipelines.core.parsing import parse

PROGRAM = f"python -m {__package__}.pretrained"


class Arguments(Frozen):
    """Writes the net of a run into the package, for `from_preset(NAME, weights=True)` and `highway predict NAME`."""

    run: tyro.conf.Positional[Path | None] = None
    """An evaluated run with validation images, on which probabilities are calibrated."""
    name: tyro.conf.Positional[str] = ""
    """Name of the model."""
    images: bool = False
    """Instead, update the conversion of image files of all nets of the package to that of the current code."""


def main(arguments: list[str]) -> None:
    """Writes the net, or the conversions of all nets, and prints the folders.

    Args:
        arguments: the words after the program.

    Raises:
        UserError: neither is asked for; or see `pipelines.export.pretrained.write`.
    """
    given = parse(Arguments, arguments, PROGRAM, Arguments.__doc__ or "")
    if (bool(given.run), bool(given.name), given.images) not in ((True, True, False), (False, False, True)):
        raise UserError(f"name a run and a model, or --images alone: {PROGRAM} RUN NAME.")
    frameworks.load(console=Console(stderr=True))
    from highway_keras.models.trained_weights import REPOSITORY, pretrained
    from pipelines.export.pretrained import refresh_images, write

    if given.run:
        sys.stdout.write(f"{write(given.run, REPOSITORY / given.name)}\n")
        return
    for folder in pretrained().values():
        refresh_images(folder)
        sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    sys.exit(guarded(PROGRAM, lambda: main(sys.argv[1:])))

"""`python -m tests.toy_train ARGUMENTS`: `highway train` on the toy data."""

import sys

import pytest

from pipelines.core import frameworks
from pipelines.verbs import cli
from tests.toy_data import ToyData


def main(words):
    """Runs the verb on the toy data; returns its status."""
    frameworks.load()
    with pytest.MonkeyPatch.context() as patch:
        ToyData(side=28).install(patch)
        return cli.main(["train", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

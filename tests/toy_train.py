"""`python -m tests.toy_train ARGUMENTS`: `highway train` on the toy data."""

import sys

import pytest

from pipelines.core import frameworks
from pipelines.verbs import cli

if __name__ == "__main__":
    frameworks.load()
    # After that, because it imports TensorFlow, which would import packages that nothing here uses.
    from tests.toy_data import ToyData

    with pytest.MonkeyPatch.context() as patch:
        ToyData(side=28).install(patch)
        sys.exit(cli.main(["train", *sys.argv[1:]]))

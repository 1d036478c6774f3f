"""`python -m tests.shallow_study reproduce NAME ...`: `highway` with the nets of a study a tenth as deep.

Compiling deep plain nets takes most of the time.
"""

import sys

from pipelines import studies
from pipelines.verbs.cli import main


def shallow(arms):
    """Returns the arms of a study with nets a tenth as deep."""
    found = {}
    for name, arm in arms.items():
        model = arm.config.model.model_copy(update={"depth": 1 + arm.config.model.depth // 10})
        found[name] = arm.model_copy(update={"config": arm.config.model_copy(update={"model": model})})
    return found


if __name__ == "__main__":
    defined = studies.get(sys.argv[2]).arms
    defined.update(shallow(defined))
    sys.exit(main(sys.argv[1:]))

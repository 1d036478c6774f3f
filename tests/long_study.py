"""`python -m tests.long_study reproduce bias ...`: `highway` with one run of a study that lasts for seconds.

At the budget of the tests, a run is a single step, which no kill ever meets.
"""

import sys

from pipelines import studies
from pipelines.verbs.cli import main

ARM = "10-layers-bias-6"
EPOCHS = 60_000
"""At the budget of the tests, 104 epochs of one step."""


def lengthened(arms):
    """Returns the arms of the study, of which one has more epochs."""
    config = arms[ARM].config.model_copy(update={"epochs": EPOCHS})
    return {**arms, ARM: arms[ARM].model_copy(update={"config": config})}


if __name__ == "__main__":
    defined = studies.get(sys.argv[2]).arms
    defined.update(lengthened(defined))
    sys.exit(main(sys.argv[1:]))

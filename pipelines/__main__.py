"""`python -m pipelines`: the program `highway`."""

import sys

from pipelines.verbs.cli import main

sys.exit(main())

"""`python -m pipelines`: the program `highway`."""

import sys

from pipelines.cli import main

sys.exit(main())

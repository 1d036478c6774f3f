"""`highway reproduce`: runs a study, and makes a page with its tables and figures beside the source's own numbers."""

from pathlib import Path

import tyro
from rich.console import Console

from pipelines import studies
from pipelines.core.config import Count, Frozen, Share
from pipelines.core.errors import UserError
from pipelines.core.parsing import parse
from pipelines.studies.run.plan import Schedule
from pipelines.studies.run.reproduce import reproduce
from pipelines.training import signals

DESCRIPTION = """Runs a study: every arm with every seed, or with many settings; then a page with tables and figures.

  highway reproduce depth-contrast --workers 2    in studies/depth-contrast; repeat the command to go on after any stop
  highway reproduce depth-contrast --budget 0.01  a hundredth of the work; every table and figure says so
  highway reproduce cifar10 --schedule short      ten epochs for each net, in place of hundreds; they say so too
  highway reproduce --list                        the studies, and what each takes on this machine"""


class Arguments(Frozen):
    """What to reproduce, and where."""

    name: tyro.conf.Positional[str | None] = None
    """The study."""
    list: bool = False
    """Tell the studies and what each takes on this machine instead; steps that were never measured here are."""
    to: Path | None = None
    """Folder of the study; none is studies/NAME."""
    seeds: Count | None = None
    """Runs of each arm, with the seeds 0, 1, ...; none is the study's. A study that draws settings has none."""
    budget: Share = 1.0
    """Share of the work: fewer seeds or settings, epochs and examples, and a label on every table and figure."""
    schedule: Schedule | None = None
    """Train as long as the source, or as long as a CPU can; none is short where there is no GPU or TPU, if the study
    has a short schedule."""
    arms: tuple[str, ...] = ()
    """Run these alone, and make the page of them; none is all. Others can be run later, in the same folder."""
    workers: Count = 1
    """Runs at the same time, each on its share of the cores."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway reproduce`.

    Raises:
        UserError: see `reproduce`.
        StoppedError: after SIGTERM or Ctrl-C, once all processes have ended.
    """
    given = parse(Arguments, arguments, "highway reproduce", DESCRIPTION)
    with signals.raised():
        if given.list:
            if given.name is not None:
                raise UserError(f"--list takes no study. Did you mean: highway reproduce {given.name}")
            from pipelines.studies.run import listing

            console = Console()
            # What is read by a program is not folded.
            listing.show(given.data_dir, console if console.is_terminal else Console(width=400))
            return
        if given.name is None:
            raise UserError(f"which study? highway reproduce NAME. Choices: {', '.join(studies.names())}.")
        reproduce(
            given.name, given.to, seeds=given.seeds, budget=given.budget, schedule=given.schedule,
            arms=given.arms, workers=given.workers, data_dir=given.data_dir, console=Console(),
        )  # fmt: skip

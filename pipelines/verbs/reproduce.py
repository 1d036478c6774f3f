"""`highway reproduce`: runs a study and writes a page with tables and figures next to the source's own numbers."""

from pathlib import Path

import tyro
from rich.console import Console

from pipelines import studies
from pipelines.core import signals
from pipelines.core.console import table_console
from pipelines.core.errors import UserError
from pipelines.core.frozen import Count, Frozen, Share
from pipelines.core.parsing import parse
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url
from pipelines.studies.run.reproduce import reproduce
from pipelines.studies.run.study_plan import Schedule
from pipelines.studies.run.training import Machines

DESCRIPTION = """Runs a study: every arm with every seed, or with many settings; then writes tables and figures.

  highway reproduce depth-contrast --workers 2    in studies/depth-contrast; repeat the command to resume
  highway reproduce depth-contrast --budget 0.01  a hundredth of the work; every table and figure is labelled
  highway reproduce cifar10 --schedule short      ten epochs per net instead of hundreds; labelled likewise
  highway reproduce --list                        the studies, and how long each takes where that is known
  highway reproduce --list --measure              first measures the unknown ones, for minutes"""


class Arguments(Frozen):
    """Options of `highway reproduce`."""

    name: tyro.conf.Positional[str | None] = None
    """Name of the study."""
    list: bool = False
    """List the studies, and how long each takes on this machine as far as that has been measured."""
    measure: bool = False
    """With --list, measure the steps of all nets first that have not been measured on this machine."""
    to: Location | None = None
    """Folder of the study, or its URL; default: studies/NAME."""
    seeds: Count | None = None
    """Runs of each arm, with the seeds 0, 1, ...; default: the study's own number. Not for a study that draws
    settings."""
    budget: Share = 1.0
    """Share of the work, split evenly among seeds or settings, epochs and examples: 0.001 keeps a tenth of each. Every
    table and figure is labelled. `highway tune --budget` reduces trials and epochs only."""
    schedule: Schedule | None = None
    """Train as long as the source did, or only as long as a CPU can; default: short if the study has a short schedule
    and the machine has no GPU or TPU."""
    arms: tuple[str, ...] = ()
    """Arms to run; default: all. The others can be run later in the same folder."""
    workers: Count | None = None
    """Number of runs at the same time on this machine, each on its share of the cores; default: 1."""
    cluster: str | None = None
    """Train the runs on a Ray cluster: HOST:PORT of its head, or "auto" for the cluster of this machine."""
    cores_per_run: Count | None = None
    """Cores of a run on the cluster; default: 1."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


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

            listing.show(given.data_dir, table_console(), measure=given.measure)
            return
        if given.measure:
            raise UserError("--measure is for highway reproduce --list.")
        if given.name is None:
            raise UserError(f"which study? highway reproduce NAME. Choices: {', '.join(studies.names())}.")
        if given.cores_per_run and not given.cluster:
            raise UserError(
                "--cores-per-run is for --cluster. On this machine, the cores are divided among --workers: leave it "
                "out."
            )
        if given.workers and given.cluster:
            raise UserError(
                "--workers is for this machine. A cluster trains as many runs as its cores allow: leave it out."
            )
        place = given.to or Path("studies") / given.name
        if isinstance(place, Url):
            place.check_writable()
        with synced(place, owned=True) as folder:
            reproduce(
                given.name, folder, seeds=given.seeds, budget=given.budget, schedule=given.schedule, arms=given.arms,
                machines=Machines(given.workers or 1, given.cluster, given.cores_per_run or 1), data_dir=given.data_dir,
                console=Console(),
            )  # fmt: skip

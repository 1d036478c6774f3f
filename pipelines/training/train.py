"""Functions that train a new or interrupted run to its end, or find its learning rate, without a command line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError, disk_is_full
from pipelines.core.files import check_writable, remove_leftovers
from pipelines.core.ownership import claim
from pipelines.core.run import Run, locked, open_run, refuse_existing, resuming
from pipelines.training.probe import Probes

if TYPE_CHECKING:
    from pipelines.training.checkpoint import Interval
    from pipelines.training.exchange import Exchange
    from pipelines.training.trackers import TrackerName


class TrainOptions(TypedDict, total=False):
    """Options of `train` and `resume`."""

    data_dir: Path | None
    """Folder of prepared data; None, the default, for that of TFDS."""
    interval: "Interval"
    """Steps between two checkpoints; "auto", the default, keeps their cost below 0.2% of the time."""
    console: Console | None
    """Where to print progress; None, the default, prints to standard output."""
    probe: Probes | None
    """Measurements during training; by default none."""
    reset_watchdog: Callable[[], None] | None
    """Called after every execution of training or validation; by default nothing is."""
    track: "TrackerName | None"
    """Experiment tracker to report to, "mlflow" or "wandb"; by default none."""
    devices: int | None
    """Number of devices to divide each batch among; None, the default, chooses it, or keeps that of a resumed run."""
    exchange: "Exchange | None"
    """Connection with other processes, which follow this one; without one, the default, it trains alone."""
    again: Sequence[str]
    """Further options of the command that resumes the run, for messages; by default none."""


def train(config: Config, path: Path, **options: Unpack[TrainOptions]) -> Run:
    """Trains a new run to its end and draws its figures.

    Args:
        config: the configuration, as in a recipe.
        path: the run directory to create.
        options: see `TrainOptions`.

    Returns:
        The finished run.

    Raises:
        UserError: the folder exists, the data cannot be loaded, the net cannot be built, the disk is full, or training
            diverges.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.

    Example:
        train(recipes.get("demo").config, Path("runs/demo"))
    """
    # Checked here too, because importing the frameworks and preparing the data take time.
    refuse_existing(path, options.get("again", ()))
    check_writable(path)
    return _complete(config, path, options)


def resume(path: Path, **options: Unpack[TrainOptions]) -> Run:
    """Resumes an interrupted run from its last checkpoint, trains it to its end and draws its figures.

    Args:
        path: the run directory.
        options: see `TrainOptions`; they may differ from those before.

    Returns:
        The finished run.

    Raises:
        UserError: there is nothing to resume, a file is damaged, data, backend or a version differ, the disk is full,
            or training diverges.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.

    Example:
        resume(Path("runs/demo"))
    """
    open_run(path)
    return _complete(None, path, options)


def find_rate(config: Config, path: Path, *, data_dir: Path | None = None, console: Console | None = None) -> float:
    """Finds a learning rate for a configuration, by training with a rising one, and draws the losses.

    Args:
        config: the configuration, as in a recipe.
        path: the figure to write.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress; None prints to standard output.

    Returns:
        The suggested learning rate.

    Raises:
        UserError: the data cannot be loaded, the net cannot be built, or the loss is not finite from the start.

    Example:
        find_rate(recipes.get("demo").config, Path("rates.png"))
    """
    console = console or Console()
    frameworks.load(console=console)
    from pipelines.training import rate_finder

    found = rate_finder.sweep(config, data_dir, console)
    rate_finder.draw(found, config, path)
    return found.suggested


def _complete(config: Config | None, path: Path, options: TrainOptions) -> Run:
    console, devices = options.get("console") or Console(), options.get("devices")
    again = options.get("again", ())
    with _advice(resuming(path, again), path, console):
        frameworks.load(devices or (1 if config else open_run(path).record.devices or 1), console)
        from pipelines.training import figures, launch, report
        from pipelines.training.callbacks import ResetWatchdog

        reset_watchdog = options.get("reset_watchdog")
        chosen = launch.Options(
            data_dir=options.get("data_dir"),
            console=console,
            interval=options.get("interval", "auto"),
            callbacks=[ResetWatchdog(reset_watchdog)] if reset_watchdog else [],
            probe=options.get("probe"),
            track=options.get("track"),
            devices=devices,
            exchange=options.get("exchange"),
            again=again,
        )
        if config is not None:
            run = launch.start(config, path, chosen)
        elif _is_trained(path):
            claim(path)
            run = open_run(path)
        else:
            run = launch.resume(path, chosen)
        with locked(run):
            for folder in (run.path, run.path / "figures"):
                remove_leftovers(folder)
            figures.draw_training(run)
            report.write(run)
    return run


@contextmanager
def _advice(command: str, path: Path, console: Console) -> Iterator[None]:
    """Prints the command that resumes a run if it is interrupted in the block."""
    try:
        yield
    except KeyboardInterrupt:
        if path.is_dir():
            say(console, f"stopped; resume with: {command}")
        raise
    except Exception as error:
        full = disk_is_full(error)
        if not (full and path.is_dir()):
            raise
        raise UserError(
            f"the disk is full ({full}). Everything saved before is intact: free some space, and resume with: {command}"
        ) from error


def _is_trained(path: Path) -> bool:
    """Returns whether a run was killed after its last step: the report is written last."""
    record = open_run(path).record
    return record.state == "finished" and record.pruned is None and not (path / "report.md").exists()

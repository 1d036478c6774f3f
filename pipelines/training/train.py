"""Trains a run to its end, new or interrupted, and draws its figures: no command line is needed for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.errors import UserError, disk_is_full
from pipelines.core.files import remove_leftovers
from pipelines.core.run import Run, locked, open_run, refuse_existing
from pipelines.training.probe import Probes

if TYPE_CHECKING:
    from pipelines.training.intervals import Interval


def train(
    config: Config,
    path: Path,
    *,
    data_dir: Path | None = None,
    interval: "Interval" = "auto",
    console: Console | None = None,
    probe: Probes | None = None,
    heartbeat: Callable[[], None] | None = None,
) -> Run:
    """Trains a new run to its end and draws its figures.

    Args:
        config: what to train, as a recipe holds it.
        path: the run directory to make.
        data_dir: where prepared data lies; None for the default of TFDS.
        interval: steps between two checkpoints; "auto" keeps what they cost below 2 % of the time.
        console: for progress; None for one of standard output.
        probe: what is measured on the way; None for nothing.
        heartbeat: called whenever an execution of training or validation has ended; None for nothing.

    Returns:
        The finished run.

    Raises:
        UserError: if the folder exists, data or net cannot be made, the disk is full, or training diverges.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.

    Example:
        train(recipes.get("demo").config, Path("runs/demo"))
    """
    # Here as well, as the frameworks take seconds to import.
    refuse_existing(path)
    console = console or Console()
    with _advice(path, console):
        frameworks.load()
        from pipelines.training import launch

        more: Any = {"interval": interval, "callbacks": _callbacks(heartbeat), "probe": probe}
        run = launch.start(config, path, data_dir, console, **more)
        _draw(run)
    return run


def resume(
    path: Path,
    *,
    data_dir: Path | None = None,
    interval: "Interval" = "auto",
    console: Console | None = None,
    probe: Probes | None = None,
    heartbeat: Callable[[], None] | None = None,
) -> Run:
    """Resumes an interrupted run from its last checkpoint, trains it to its end and draws its figures.

    Args:
        path: the run directory.
        data_dir: where prepared data lies; None for the default of TFDS.
        interval: steps between two checkpoints; it may be another than before.
        console: for progress; None for one of standard output.
        probe: what is measured on the way; None for nothing.
        heartbeat: called whenever an execution of training or validation has ended; None for nothing.

    Returns:
        The finished run.

    Raises:
        UserError: if there is nothing to resume, a file is damaged, data, backend or a version differ, the disk is
            full, or training diverges.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.

    Example:
        resume(Path("runs/demo"))
    """
    open_run(path)
    console = console or Console()
    with _advice(path, console):
        frameworks.load()
        from pipelines.training import launch

        if _only_undrawn(path):
            run = open_run(path)
        else:
            more: Any = {"interval": interval, "callbacks": _callbacks(heartbeat), "probe": probe}
            run = launch.resume(path, data_dir, console, **more)
        _draw(run)
    return run


@contextmanager
def _advice(path: Path, console: Console) -> Iterator[None]:
    """Says how a run that is stopped in the block can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        if path.is_dir():
            console.print(f"stopped; go on with: highway train --resume {path}", highlight=False, soft_wrap=True)
        raise
    except Exception as error:
        full = disk_is_full(error)
        if not (full and path.is_dir()):
            raise
        raise UserError(
            f"the disk is full ({full}). What was saved before is whole: "
            f"free some space, and go on with: highway train --resume {path}"
        ) from error


def _callbacks(heartbeat: Callable[[], None] | None) -> list[Any]:
    from pipelines.training.heartbeat import Heartbeat

    return [Heartbeat(heartbeat)] if heartbeat else []


def _only_undrawn(path: Path) -> bool:
    """Whether a run was killed after its last step: the report is the last that is written."""
    return open_run(path).record.state == "finished" and not (path / "report.md").exists()


def _draw(run: Run) -> None:
    from pipelines.training import figures, report

    with locked(run):
        for folder in (run.path, run.path / "figures"):
            remove_leftovers(folder)
        figures.draw_training(run)
        report.write(run)

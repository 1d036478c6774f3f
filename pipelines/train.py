"""`highway train`: trains the net of a recipe, or goes on with a run that was stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines import frameworks
from pipelines.arguments import TrainArguments, parse_train
from pipelines.errors import UserError, disk_is_full
from pipelines.files import remove_leftovers
from pipelines.run import Run, locked, open_run, refuse_existing


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway train`.

    Raises:
        UserError: see `train`.
    """
    console = Console()
    given = parse_train(arguments)
    run = train(given, console)
    console.print(_summary(run), highlight=False, soft_wrap=True)


def train(given: TrainArguments, console: Console, alive: Callable[[], None] | None = None) -> Run:
    """Trains a run to its end and draws its figures.

    Args:
        given: recipe with overrides and folder, or the run to go on with.
        console: for progress.
        alive: called whenever an execution of training or validation has ended; None for nothing.

    Returns:
        The finished run.

    Raises:
        UserError: if the folder of a new run exists, there is nothing to resume, data or net cannot be made,
            a file is damaged, the disk is full, or training diverges.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.

    Example:
        train(parse_train(["demo", "--epochs", "5"]), Console())
    """
    path = folder(given)
    if given.config is None:
        open_run(path)
    else:
        # Here as well, as the frameworks take seconds to import.
        refuse_existing(path)
    frameworks.load()
    from pipelines.training import loop
    from pipelines.training.alive import Alive

    more: Any = {"interval": given.interval, "callbacks": [Alive(alive)] if alive else []}
    try:
        if given.config is not None:
            run = loop.start(given.config, path, given.data_dir, console, **more)
        elif _only_undrawn(path):
            run = open_run(path)
        else:
            run = loop.resume(path, given.data_dir, console, **more)
        _draw(run)
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
    return run


def _only_undrawn(path: Path) -> bool:
    """Whether a run was killed after its last step: the report is the last that is written."""
    return open_run(path).record.state == "finished" and not (path / "report.md").exists()


def _draw(run: Run) -> None:
    from pipelines import figures, report

    with locked(run):
        for folder in (run.path, run.path / "figures"):
            remove_leftovers(folder)
        figures.draw_training(run)
        report.write(run)


def folder(given: TrainArguments) -> Path:
    """The run directory that is meant: the one to resume, the one that was named, or runs/RECIPE."""
    if given.resume is not None:
        return given.resume
    return given.run or Path("runs") / (given.config.recipe if given.config else "")


def _summary(run: Run) -> str:
    metrics = run.record.metrics
    parts = [f"loss {metrics['loss']:.4f}"]
    if "accuracy" in metrics:
        parts.append(f"accuracy {metrics['accuracy']:.2%}")
    else:
        parts.append(f"mean absolute error {metrics['mae']:.4g}")
    if "best_val_loss" in metrics:
        best = f"best {metrics['best_val_loss']:.4f} after epoch {metrics['best_epoch']:.0f}"
        parts.append(f"validation loss {metrics['val_loss']:.4f} ({best})")
    elif "val_accuracy" in metrics:
        best = f"best {metrics['best_val_accuracy']:.2%} after epoch {metrics['best_epoch']:.0f}"
        parts.append(f"validation {metrics['val_accuracy']:.2%} ({best})")
    # Only classifiers of images can be exported.
    export = f"; highway export {run.path}" if run.record.data.labels else ""
    return (
        f"trained {run.record.step:,} steps in {run.record.seconds:.0f} s: {', '.join(parts)}\n"
        f"run directory {run.path}, report {run.path / 'report.md'}\n"
        f"next: highway evaluate {run.path}{export}"
    )

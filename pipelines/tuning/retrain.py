"""The winners of a search trained anew, with several seeds."""

import csv
import io
import statistics
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from pipelines.core.durations import clock
from pipelines.core.files import write_text
from pipelines.core.run import Run, open_run
from pipelines.recipes import named_recipe
from pipelines.training.processes.pool import say, train_all
from pipelines.training.processes.supervisor import Member
from pipelines.training.processes.train import TrainTask
from pipelines.tuning.state import Objective


def retrain(
    recipes: Mapping[str, Path],
    folder: Path,
    *,
    seeds: int,
    workers: int,
    data_dir: Path | None,
    objective: Objective,
    console: Console,
) -> Path:
    """Trains each recipe with the seeds 0, 1, ...; runs that are there already are finished or left as they are.

    Args:
        recipes: recipe files, by the name of their net.
        folder: of the search.
        seeds: how many.
        workers: runs at the same time; the next starts as soon as one ends.
        data_dir: where prepared data lies; None for the default of TFDS.
        objective: what is told of them.
        console: for a line for each run and each net, and on a terminal a bar.

    Returns:
        retrained.csv, with a row for each run.

    Raises:
        UserError: a run cannot be trained.
    """
    runs = {(net, seed): folder / "retrained" / f"{net}-seed-{seed}" for net in recipes for seed in range(seeds)}
    members = []
    for (net, seed), path in runs.items():
        config = named_recipe(str(recipes[net])).config.model_copy(update={"seed": seed})
        task = TrainTask(folder=path, data_dir=data_dir, config=config)
        if not task.done:
            members.append(Member(path.name, task, {}, folder / "logs" / f"{path.name}.log"))
    train_all(members, workers=workers, console=console, doing="retrains", found=lambda run: _told(run, objective))
    rows = [(net, seed, *_score(open_run(path), objective), path) for (net, seed), path in runs.items()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("net", "seed", f"best_{objective.name}", "best_epoch", "run"))
    writer.writerows((net, seed, "" if best is None else f"{best:.6g}", *rest) for net, seed, best, *rest in rows)
    write_text(folder / "retrained.csv", text.getvalue())
    for net in recipes:
        scores = [row[2] for row in rows if row[0] == net and row[2] is not None]
        found = f"best {objective.name} {_spread(scores)} (n = {len(scores)} of {seeds}, seeds from 0 on)"
        say(console, f"{net} retrained: {found}")
    return folder / "retrained.csv"


def _told(run: Run, objective: Objective) -> str:
    score, _ = _score(run, objective)
    found = "diverged" if run.record.state == "diverged" else f"best {objective.name} {score:.6g}"
    return f"{found}, {clock(run.record.seconds)}"


def _score(run: Run, objective: Objective) -> tuple[float | None, float | None]:
    return run.record.metrics.get(f"best_{objective.name}"), run.record.metrics.get("best_epoch")


def _spread(scores: list[float]) -> str:
    if len(scores) < 2:
        return "".join(f"{score:.6g}" for score in scores) or "none, as every run diverged"
    return f"{statistics.mean(scores):.6g} +- {statistics.stdev(scores):.2g}"

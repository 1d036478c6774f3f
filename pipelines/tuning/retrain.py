"""Retraining the winners of a search with several seeds."""

import statistics
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from pipelines.core.console import say
from pipelines.core.durations import clock
from pipelines.core.files import csv_text, write_text
from pipelines.core.run import Run, open_run
from pipelines.recipes import named_recipe
from pipelines.training.processes.pool import Remote, train_all
from pipelines.training.processes.supervisor import Member
from pipelines.training.processes.task import run_of_task
from pipelines.training.processes.train import TrainTask, act
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.tuning.search_state import Objective


def retrain(
    recipes: Mapping[str, Path],
    folder: Path,
    *,
    seeds: int,
    workers: int,
    data_dir: Path | None,
    objective: Objective,
    console: Console,
    remote: Remote | None = None,
) -> Path:
    """Trains each recipe with the seeds after its own; resumes unfinished runs and keeps finished ones.

    The winner was selected for its score with its own seed, which is therefore biased upwards.

    Args:
        recipes: recipe files by the name of their net.
        folder: the folder of the search.
        seeds: number of runs of each recipe.
        workers: number of runs at the same time on this machine.
        data_dir: folder of prepared data; None for the TFDS default.
        objective: the metric to report.
        console: where to print a line for each run and each net, and a bar on a terminal.
        remote: trains the runs elsewhere; None for this machine.

    Returns:
        The file retrained.csv, with one row per run, without a score for a run that diverged.

    Raises:
        UserError: a run cannot be trained.
    """
    configs = {net: named_recipe(str(path)).config for net, path in recipes.items()}
    runs = {
        (net, seed): folder / "retrained" / f"{net}-seed-{seed}"
        for net, config in configs.items()
        for seed in range(config.seed + 1, config.seed + 1 + seeds)
    }
    members = []
    for (net, seed), path in runs.items():
        config = configs[net].model_copy(update={"seed": seed})
        # A node of a cluster may have another working directory.
        task = TrainTask(folder=path.absolute(), data_dir=data_dir and data_dir.expanduser().absolute(), config=config)
        if not task.done:
            members.append(Member(path.name, task, {}, folder / "logs" / f"{path.name}.log"))
    train_all(
        members, workers=workers, console=console, label="retrains", result=lambda run: _outcome(run, objective),
        remote=remote if members else None,
    )  # fmt: skip
    rows = [
        (net, seed, *_score(open_run(path), objective), path.relative_to(folder)) for (net, seed), path in runs.items()
    ]
    head = ("net", "seed", f"best_{objective.name}", "best_epoch", "run")
    cells = ((net, seed, None if best is None else f"{best:.6g}", *rest) for net, seed, best, *rest in rows)
    write_text(folder / "retrained.csv", csv_text([head, *cells]))
    for net, config in configs.items():
        scores = [row[2] for row in rows if row[0] == net and row[2] is not None]
        best = f"best {objective.label} {_spread(scores, objective)}"
        say(console, f"{net} retrained: {best} (n = {len(scores)} of {seeds}, seeds from {config.seed + 1})")
    return folder / "retrained.csv"


def retrain_on_node(task: TrainTask) -> None:
    """Trains a run on a node of a cluster; see `pipelines.training.processes.train.act`."""
    with run_of_task(task.place, SEARCH_FILE.name) as run:
        act(task.model_copy(update={"folder": run}))


def _outcome(run: Run, objective: Objective) -> str:
    score, _ = _score(run, objective)
    outcome = "diverged" if run.record.state == "diverged" else f"best {objective.label} {objective.text(score)}"
    return f"{outcome}, {clock(run.record.seconds)}"


def _score(run: Run, objective: Objective) -> tuple[float | None, float | None]:
    """Returns the best score of a run and its epoch; neither for one that diverged, however good it was before."""
    if run.record.state == "diverged":
        return None, None
    return run.record.metrics.get(f"best_{objective.name}"), run.record.metrics.get("best_epoch")


def _spread(scores: list[float], objective: Objective) -> str:
    if len(scores) < 2:
        return "".join(map(objective.text, scores)) or "none: every run diverged"
    # Without a unit: that of the mean.
    spread = objective.text(statistics.stdev(scores)).rstrip("%")
    return f"{objective.text(statistics.mean(scores))} ± {spread}"

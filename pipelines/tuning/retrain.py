"""The winners of a search trained anew, with several seeds."""

import csv
import io
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pipelines import environment
from pipelines.files import write_text
from pipelines.run import Run, open_run
from pipelines.tuning.crew import Crew, Member, shares
from pipelines.tuning.process import Task
from pipelines.tuning.state import Objective


def retrain(
    recipes: Mapping[str, Path],
    folder: Path,
    *,
    seeds: int,
    workers: int,
    data_dir: Path | None,
    objective: Objective,
    say: Callable[[str], None],
) -> Path:
    """Trains each recipe with the seeds 0, 1, ...; runs that are there already are finished or left as they are.

    Args:
        recipes: recipe files, by the name of their net.
        folder: of the search.
        seeds: how many.
        workers: runs at the same time.
        data_dir: where prepared data lies; None for the default of TFDS.
        objective: what is told of them.
        say: takes a line for each net.

    Returns:
        retrained.csv, with a row for each run.

    Raises:
        UserError: a run cannot be trained.
    """
    runs = {(net, seed): folder / "retrained" / f"{net}-seed-{seed}" for net in recipes for seed in range(seeds)}
    members = [
        Member(
            f"{net}-seed-{seed}",
            Task(role="retrain", folder=path, data_dir=data_dir, recipe=recipes[net], seed=seed),
            {},
            folder / "logs" / f"{net}-seed-{seed}.log",
        )
        for (net, seed), path in runs.items()
        if not path.exists() or open_run(path).record.state == "running"
    ]
    cores = shares(environment.available(), workers)
    for start in range(0, len(members), workers):
        together = members[start : start + workers]
        for member, share in zip(together, cores, strict=False):
            member.task = member.task.model_copy(update={"cores": share})
        with Crew(together, say) as crew:
            while crew.works():
                time.sleep(0.2)
    rows = [(net, seed, *_score(open_run(path), objective), path) for (net, seed), path in runs.items()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("net", "seed", f"best_{objective.name}", "best_epoch", "run"), *rows])
    write_text(folder / "retrained.csv", text.getvalue())
    for net in recipes:
        scores = [row[2] for row in rows if row[0] == net and row[2] is not None]
        say(f"{net} retrained: best {objective.name} {_spread(scores)} (n = {len(scores)} of {seeds}, seeds from 0 on)")
    return folder / "retrained.csv"


def _score(run: Run, objective: Objective) -> tuple[float | None, float | None]:
    return run.record.metrics.get(f"best_{objective.name}"), run.record.metrics.get("best_epoch")


def _spread(scores: list[float]) -> str:
    if len(scores) < 2:
        return "".join(f"{score:.6g}" for score in scores) or "none, as every run diverged"
    return f"{statistics.mean(scores):.6g} +- {statistics.stdev(scores):.2g}"

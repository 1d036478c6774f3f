"""What is left of a search: a table of its trials, and the winner as a recipe."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from pipelines.core import environment
from pipelines.core.config import Provenance, Recipe
from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.recipes.provenance import flat
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.space import searched
from pipelines.tuning.state import SearchState, Trial

COLUMNS = ("trial", "status", "score", "seconds", "epochs", "continues", "reason")


def winners(plan: SearchPlan, state: SearchState) -> dict[str, Trial]:
    """The best trial of each net.

    Args:
        plan: of the search.
        state: of its trials.

    Returns:
        Trials by the name of their net, in the order of the plan; nets without a completed trial are left out.
    """
    best: dict[str, Trial] = {}
    for trial in state.ranked:
        best.setdefault(plan.net(trial.values), trial)
    return {name: best[name] for name in _nets(plan) if name in best}


def write(folder: Path, plan: SearchPlan, state: SearchState) -> dict[str, Path]:
    """Writes trials.csv and the winners' recipes.

    Args:
        folder: of the search.
        plan: what was searched.
        state: how it went.

    Returns:
        The recipes' files by the name of their net.

    Raises:
        UserError: no trial was completed; the reasons are told, the commonest first.
    """
    write_text(folder / "trials.csv", table(plan, state))
    best = winners(plan, state)
    if not best:
        reasons = "".join(f" {reason.rstrip('.')}." for reason in state.reasons)
        said = f"none of {len(state.trials)} trials has a result.{reasons}"
        raise UserError(f"{said} All are in {folder / 'trials.csv'}. Search in other bounds, in another folder.")
    files = {}
    for net, trial in best.items():
        files[net] = folder / (f"best-{net}.json" if plan.nets else "best.json")
        write_text(files[net], recipe(plan, state, trial).model_dump_json(indent=2) + "\n")
    return files


def table(plan: SearchPlan, state: SearchState) -> str:
    """trials.csv: a row a trial in the order they were drawn, and a line that says so where a budget cut it short."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*(["net"] if plan.nets else []), *searched(plan.space)]
    label = ["budget"] if plan.label else []
    writer.writerow([*COLUMNS[:2], state.objective.name, *names, *COLUMNS[3:], *label])
    for trial in state.trials:
        writer.writerow(
            [
                trial.number,
                trial.status,
                "" if trial.score is None else f"{trial.score:.6g}",
                *(_cell(plan, trial, name) for name in names),
                f"{trial.seconds:.1f}" if trial.over else "",
                trial.epochs or plan.config.epochs,
                trial.earlier or "",
                trial.reason,
                *([plan.label] if plan.label else []),
            ]
        )
    return text.getvalue()


def recipe(plan: SearchPlan, state: SearchState, trial: Trial) -> Recipe:
    """A trial as a recipe: what `highway train` needs to train it again.

    Args:
        plan: of the search.
        state: for the objective.
        trial: a completed one.

    Returns:
        The recipe; every number that is not a default counts as assumed.
    """
    config = plan.configured(trial.values)
    name = f"{plan.net(trial.values)}_tuned"
    config = config.model_copy(update={"recipe": name})
    completed = sum(other.score is not None for other in state.trials)
    extreme = "highest" if state.objective.direction == "max" else "lowest"
    found = f"{state.objective.name} {trial.score:.6g}, the {extreme}"
    label = f" ({plan.label})" if plan.label else ""
    # Of a trial that was stopped early too the recipe is that of the whole schedule, which begins in the same way.
    rounds = f" after {trial.epochs} epochs" if trial.epochs and trial.epochs < config.epochs else ""
    drawn = " ".join(f"{key}={value}" for key, value in plan.meant(trial.values).items())
    return Recipe(
        config=config,
        source=f"trial {trial.number}{rounds} of the {plan.algorithm} search over {plan.name}{label}: {drawn}",
        published="none",
        provenance=Provenance(assumed=tuple(key for key in flat(config) if key not in ("recipe", "seed"))),
        search=plan.space,
        measured=f"{found} of {completed} completed trials, seed {config.seed}, best epoch; `{environment.command()}`",
    )


def _cell(plan: SearchPlan, trial: Trial, name: str) -> str:
    value = plan.meant(trial.values).get(name, "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _nets(plan: SearchPlan) -> list[str]:
    return [net.name for net in plan.nets] or [plan.name]


def told(plan: SearchPlan, state: SearchState, files: Mapping[str, Path]) -> list[str]:
    """What is said at the end: the winner of each net, and what to do with it.

    Args:
        plan: of the search.
        state: how it went.
        files: recipes by the name of their net.

    Returns:
        Lines.
    """
    best = winners(plan, state)
    lines = [plan.label] if plan.label else []
    if state.over and plan.trials and len(state.trials) < plan.trials:
        lines.append(f"no more than these {len(state.trials)} settings were found in the space")
    for net, trial in best.items():
        values = " ".join(f"{name}={_cell(plan, trial, name)}" for name in plan.meant(trial.values) if name != "net")
        lines.append(f"{net}: best {state.objective.name} {trial.score:.6g}, trial {trial.number}: {values}")
    first = next(iter(files.values()))
    lines.append(f"trials {first.parent / 'trials.csv'}, figures {first.parent / 'figures'}")
    lines.append(f"next: highway train {first}; tensorboard --logdir {first.parent / 'tensorboard'}")
    return lines

"""Results of a search: the table of its trials, the winners as recipes, and TensorBoard's HParams page."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from pipelines.core import environment
from pipelines.core.config import Provenance, Recipe
from pipelines.core.errors import UserError
from pipelines.core.files import csv_text, write_text
from pipelines.core.frozen import flat
from pipelines.tuning import settings
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import SearchState, Trial
from pipelines.tuning.space import searched

COLUMNS = ("trial", "status", "score", "seconds", "epochs", "continues", "reason")


def winners(plan: SearchPlan, state: SearchState) -> dict[str, Trial]:
    """Returns the best trial of each net.

    Args:
        plan: the plan of the search.
        state: the state of the search.

    Returns:
        Trials by name of their net, in the order of the plan; nets without a completed trial are left out.
    """
    best: dict[str, Trial] = {}
    for trial in state.ranked:
        best.setdefault(plan.net(trial.values), trial)
    return {name: best[name] for name in _nets(plan) if name in best}


def write(folder: Path, plan: SearchPlan, state: SearchState) -> dict[str, Path]:
    """Writes trials.csv and the recipes of the winners.

    Args:
        folder: the folder of the search.
        plan: the plan of the search.
        state: the state of the search.

    Returns:
        Recipe files by the name of their net.

    Raises:
        UserError: no trial was completed; the message lists the reasons, most frequent first.
    """
    write_text(folder / "trials.csv", table(plan, state))
    best = winners(plan, state)
    if not best:
        reasons = "".join(f" {reason.rstrip('.')}." for reason in state.reasons)
        raise UserError(
            f"none of {len(state.trials)} trials has a result.{reasons} All are in {folder / 'trials.csv'}. Change the "
            "search space and search in another folder."
        )
    files = {}
    for net, trial in best.items():
        files[net] = folder / (f"best-{net}.json" if plan.nets else "best.json")
        write_text(files[net], recipe(plan, state, trial).model_dump_json(indent=2) + "\n")
    return files


def table(plan: SearchPlan, state: SearchState) -> str:
    """Formats trials.csv: one row per trial in the order of sampling, with the budget if it is a reduced one."""
    names = [*(["net"] if plan.nets else []), *searched(plan.space)]
    label = ["budget"] if plan.label else []
    head = [*COLUMNS[:2], state.objective.name, *names, *COLUMNS[3:], *label]
    rows = (
        [
            trial.number,
            trial.status,
            None if trial.score is None else f"{trial.score:.6g}",
            *(_cell(plan, trial, name) for name in names),
            f"{trial.seconds:.1f}" if trial.over else None,
            trial.epochs or plan.config.epochs,
            trial.earlier,
            trial.reason,
            *([plan.label] if plan.label else []),
        ]
        for trial in state.trials
    )
    return csv_text([head, *rows])


def recipe(plan: SearchPlan, state: SearchState, trial: Trial) -> Recipe:
    """Turns a trial into a recipe for `highway train`.

    Args:
        plan: the plan of the search.
        state: the state of the search.
        trial: a completed trial.

    Returns:
        The recipe; every number that is not a default counts as assumed.
    """
    config = plan.configured(trial.values)
    name = f"{plan.net(trial.values)}_tuned"
    config = config.model_copy(update={"recipe": name})
    completed = sum(other.score is not None for other in state.trials)
    extreme = "highest" if state.objective.direction == "max" else "lowest"
    found = f"{state.objective.label} {state.objective.text(trial.score)}, the {extreme}"
    label = f" ({plan.label})" if plan.label else ""
    # A trial that stopped at a rung becomes a recipe with the full schedule, which begins the same way.
    rounds = f" after {trial.epochs} epochs" if trial.epochs and trial.epochs < config.epochs else ""
    sampled = " ".join(f"{key}={value}" for key, value in plan.effective(trial.values).items())
    return Recipe(
        config=config,
        source=f"trial {trial.number}{rounds} of the {plan.algorithm} search over {plan.name}{label}: {sampled}",
        published="none",
        provenance=Provenance(assumed=tuple(key for key in flat(config) if key not in ("recipe", "seed"))),
        search=plan.space,
        measured=f"{found} of {completed} completed trials, seed {config.seed}, best epoch; `{environment.command()}`",
    )


def report(plan: SearchPlan, state: SearchState, files: Mapping[str, Path]) -> list[str]:
    """Formats the final message: the winner of each net, and the next commands.

    Args:
        plan: the plan of the search.
        state: the state of the search.
        files: recipe files by the name of their net.

    Returns:
        Lines.
    """
    lines = [plan.label] if plan.label else []
    if state.over and len(state.trials) < len(plan.work):
        lines.append(
            f"an earlier version ended this search after {len(state.trials)} of {len(plan.work)} trials. For all of "
            "them, search in another folder with --to DIR."
        )
    elif state.over and plan.exhausts:
        lines.append(f"the space has no more than these {plan.settings} settings")
    for net, trial in winners(plan, state).items():
        names = (name for name in plan.effective(trial.values) if name != "net")
        values = " ".join(f"{name}={_cell(plan, trial, name)}" for name in names)
        found = f"{state.objective.label} {state.objective.text(trial.score)}"
        lines.append(f"{net}: best {found}, trial {trial.number}: {values}")
    first = next(iter(files.values()))
    lines.append(f"trials {first.parent / 'trials.csv'}, figures {first.parent / 'figures'}")
    train, board = ["highway", "train", str(first)], ["tensorboard", "--logdir", str(first.parent / "tensorboard")]
    lines.append(f"next: {shlex.join(train)}; {shlex.join(board)}")
    return lines


def write_hparams(folder: Path, plan: SearchPlan, state: SearchState) -> None:
    """Rewrites the folder `tensorboard` for the HParams page: one session per setting, by its longest trial.

    Args:
        folder: the folder of the search.
        plan: the plan of the search.
        state: the state of the search; trials with a score are shown.
    """
    # Called after a search only, which has loaded TensorFlow already.
    import tensorflow as tf
    from tensorboard.plugins.hparams import api

    logs = folder / "tensorboard"
    shutil.rmtree(logs, ignore_errors=True)
    trials = settings.longest(state.ranked)
    domains = {}
    for name in settings.names(plan, trials):
        choices = settings.choices(plan, trials, name)
        domain = api.Discrete(choices) if choices else api.RealInterval(*map(float, searched(plan.space)[name]))
        domains[name] = api.HParam(name, domain)
    objective = state.objective.name
    with tf.summary.create_file_writer(str(logs)).as_default():
        api.hparams_config(list(domains.values()), [api.Metric(objective, display_name=f"best {objective}")])
    for trial in trials:
        epochs = settings.epochs(plan, trial)
        values = plan.effective(trial.values) | {"epochs": epochs}
        with tf.summary.create_file_writer(str(logs / trial.number)).as_default():
            api.hparams(
                {hparam: values[name] for name, hparam in domains.items() if name in values}, trial_id=trial.number
            )
            tf.summary.scalar(objective, trial.score, step=epochs)


def _cell(plan: SearchPlan, trial: Trial, name: str) -> str:
    value = plan.effective(trial.values).get(name, "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _nets(plan: SearchPlan) -> list[str]:
    return [net.name for net in plan.nets] or [plan.name]

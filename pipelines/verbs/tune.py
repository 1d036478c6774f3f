"""`highway tune`: searches the hyperparameters of a recipe with KerasTuner."""

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pipelines import recipes
from pipelines.core.config import Config, Count, NonNegative, Positive, Share, Space
from pipelines.core.errors import UserError
from pipelines.core.parsing import parse_over
from pipelines.recipes import named_recipe
from pipelines.training.processes import signals
from pipelines.tuning import space
from pipelines.tuning.plan import Algorithm, SearchPlan, planned
from pipelines.tuning.tune import tune

TUNE = "highway tune"
TRIALS = 20
HELP = """usage: highway tune RECIPE [--search.PARAMETER ...] [--trials N] [--workers N] [--field VALUE ...]

Searches the hyperparameters of a recipe; scores are those of the validation split. Repeat the command to go on with a
search that was stopped, in whatever way.
  highway tune demo --trials 30 --workers 2 --search.transform-bias -5 -1 --search.dropout

  highway tune RECIPE --help   every option, with the recipe's space
  RECIPE                       a recipe, or a recipe file (best.json)
  highway reproduce optimization   the paper's random search over eight nets

Several machines, with a folder that all of them see, and the same arguments for each:
  KERASTUNER_TUNER_ID=chief KERASTUNER_ORACLE_IP=10.0.0.1 KERASTUNER_ORACLE_PORT=8400 highway tune RECIPE --to DIR
  KERASTUNER_TUNER_ID=worker-a KERASTUNER_ORACLE_IP=10.0.0.1 KERASTUNER_ORACLE_PORT=8400 highway tune RECIPE --to DIR

recipes:
  {recipes}
"""


@dataclass(frozen=True)
class TuneArguments:
    """What `highway tune` was asked for."""

    plan: SearchPlan
    folder: Path
    workers: int
    minutes: float | None
    retrain: int
    data_dir: Path | None


class _Search(Config):
    """A search over a recipe."""

    search: Space
    """What is searched: of a range LOW HIGH, of a choice its values; no values leave a parameter out."""
    algorithm: Algorithm = "random"
    """Random search, Hyperband (which stops poor trials early), or Bayesian optimisation."""
    trials: Count | None = None
    """Trials; none is 20. Hyperband decides by --epochs."""
    budget: Share = 1.0
    """Share of the full work to spend: with 0.01 a tenth of the trials, each of a tenth of the epochs."""
    workers: Count = 1
    """Processes that train at the same time; each gets its share of the cores."""
    deadline: Positive | None = None
    """Minutes after which the search stops; repeat the command to go on."""
    retrain: NonNegative = 0
    """Train the winner so many times at the end, with seeds from 0 on."""
    to: Path | None = None
    """Folder of the search; none is searches/RECIPE."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Without KerasTuner's environment variables this process starts a chief and workers of its own; with them it is the
    chief, or workers, of a search over several machines.

    Args:
        arguments: the words after `highway tune`.

    Raises:
        UserError: see `tune`.
        StoppedError: after SIGTERM or Ctrl-C, once all processes have ended.
    """
    with signals.raised():
        given = parse_tune(arguments)
        tune(
            given.plan, given.folder, workers=given.workers, minutes=given.minutes, retrain=given.retrain,
            data_dir=given.data_dir, console=Console(),
        )  # fmt: skip


def parse_tune(words: list[str]) -> TuneArguments:
    """Reads `RECIPE [--search.PARAMETER ...] [--option VALUE ...]`.

    Args:
        words: after `highway tune`.

    Returns:
        The checked arguments.

    Raises:
        UserError: no or an unknown recipe, an unknown option, a value out of range, or a search of what has no effect.
        SystemExit: after `--help` (status 0), or when the value of an option is missing (2).

    Example:
        parse_tune(["demo", "--trials", "30", "--search.transform-bias", "-5", "-1"]).plan.trials  # 30
    """
    if not words or words[0].startswith("-"):
        if {"-h", "--help"} & set(words):
            sys.stdout.write(HELP.format(recipes="\n  ".join(recipes.names())))
            raise SystemExit(0)
        raise UserError(f"which recipe? It comes first: {TUNE} RECIPE [--search.PARAMETER ...] [--option VALUE ...].")
    if words[0] == "depth_study":
        raise UserError(
            "the paper's search over nets of 10 to 100 layers is a study: highway reproduce optimization. It searches "
            "in a folder of its own; what `highway tune depth_study` left stays as it is."
        )
    base = named_recipe(words[0])
    default = _Search(**dict(base.config), search=base.search)
    about = f"Searches the hyperparameters of the recipe {base.name} ({base.source})."
    asked = parse_over(_Search, default, words[1:], f"{TUNE} {words[0]}", about)
    return _arguments(asked, base.config.recipe)


def _arguments(asked: _Search, name: str) -> TuneArguments:
    config = Config(**{field: getattr(asked, field) for field in Config.model_fields})
    space.check(asked.search, config)
    if asked.algorithm == "hyperband" and asked.trials:
        raise UserError("Hyperband decides by --epochs how many trials there are. Leave --trials out.")
    trials = None if asked.algorithm == "hyperband" else asked.trials or TRIALS
    plan = planned(name, config, asked.search, algorithm=asked.algorithm, trials=trials, share=asked.budget)
    folder = asked.to or Path("searches") / name
    return TuneArguments(plan, folder, asked.workers, asked.deadline, asked.retrain, asked.data_dir)

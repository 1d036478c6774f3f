"""`highway tune`: searches the hyperparameters of a recipe with KerasTuner."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from pipelines import recipes
from pipelines.core import signals
from pipelines.core.config import Config, Space
from pipelines.core.errors import UserError
from pipelines.core.frozen import Count, NonNegative, Positive, Share
from pipelines.core.parsing import parse_over
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url
from pipelines.data.roots import refuse_unknown
from pipelines.recipes import named_recipe
from pipelines.tuning import space
from pipelines.tuning.search import Search, tune
from pipelines.tuning.search_plan import Algorithm, planned

TUNE = "highway tune"
TRIALS = 20
HELP = """usage: highway tune RECIPE [--search.PARAMETER ...] [--trials N] [--workers N] [--field VALUE ...]

Searches the hyperparameters of a recipe; trials are scored on the validation split. Repeat the command to resume an
interrupted search.
  highway tune demo --trials 30 --workers 2 --search.transform-bias -5 -1 --search.dropout

  highway tune RECIPE --help   every option, with the search space of the recipe
  RECIPE                       a recipe, or a recipe file (best.json)
  highway reproduce optimization   the paper's random search over eight nets

On several machines, which form a Ray cluster and share a folder or a bucket:
  highway tune RECIPE --to DIR|URL --cluster 10.0.0.1:6379 --cores-per-trial 4

recipes:
  {recipes}
"""


@dataclass(frozen=True)
class TuneArguments:
    """Arguments of `highway tune`."""

    search: Search
    place: Location
    """The folder of the search, or its URL."""
    minutes: float | None
    retrain: int


class NewSearch(Config):
    """A search over a recipe."""

    search: Space
    """Search space: LOW HIGH for a range, the values for a choice; no values leave a hyperparameter out."""
    algorithm: Algorithm = "random"
    """Random search, Hyperband (stops poor trials early), or Bayesian optimization."""
    trials: Count | None = None
    """Number of trials; default: 20. Hyperband derives it from --epochs."""
    budget: Share = 1.0
    """Share of the full work, split evenly between trials and epochs: 0.01 runs a tenth of the trials, each for a tenth
    of the epochs, with a schedule scaled to match. `highway reproduce --budget` reduces examples too."""
    workers: Count | None = None
    """Processes of this machine that train at the same time, each with its share of the cores; default: 1."""
    cluster: str | None = None
    """Train the trials on a Ray cluster: HOST:PORT of its head, or "auto" for the cluster of this machine."""
    cores_per_trial: Count | None = None
    """Cores of a trial on the cluster; default: 1."""
    deadline: Positive | None = None
    """Minutes until the search stops; repeat the command to resume."""
    retrain: NonNegative = 0
    """Number of times to train the winner at the end, with seeds that the search did not use, by the workers
    or on the cluster."""
    to: Location | None = None
    """Folder of the search, or its URL; default: searches/RECIPE."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway tune`.

    Raises:
        UserError: see `tune`.
        StoppedError: after SIGTERM or Ctrl-C, once all processes have ended.
    """
    with signals.raised():
        given = parse_tune(arguments)
        refuse_unknown(given.search.plan.config.data)
        if isinstance(given.place, Url):
            given.place.check_writable()
        with synced(given.place, owned=True) as folder:
            search = replace(given.search, folder=folder)
            tune(search, minutes=given.minutes, retrain=given.retrain, console=Console())


def parse_tune(words: list[str]) -> TuneArguments:
    """Parses `RECIPE [--search.PARAMETER ...] [--option VALUE ...]`.

    Args:
        words: the words after `highway tune`.

    Returns:
        The validated arguments.

    Raises:
        UserError: the recipe is missing or unknown, an option is unknown, a value is out of range, or a hyperparameter
            has no effect.
        SystemExit: after `--help`, with status 0.

    Example:
        parse_tune(["demo", "--trials", "30", "--search.transform-bias", "-5", "-1"]).search.plan.trials  # 30
    """
    if not words or words[0].startswith("-"):
        if {"-h", "--help"} & set(words):
            sys.stdout.write(HELP.format(recipes="\n  ".join(recipes.names())))
            raise SystemExit(0)
        raise UserError(f"which recipe? It comes first: {TUNE} RECIPE [--search.PARAMETER ...] [--option VALUE ...].")
    if words[0] == "depth_study":
        raise UserError(
            "the paper's search over nets of 10 to 100 layers is a study: highway reproduce optimization. It uses "
            "its own folder; an existing folder of `highway tune depth_study` stays unchanged."
        )
    base = named_recipe(words[0])
    default = NewSearch(**dict(base.config), search=base.search)
    about = f"Searches the hyperparameters of the recipe {base.name} ({base.source})."
    parsed = parse_over(NewSearch, default, words[1:], f"{TUNE} {words[0]}", about)
    named = {word.partition("=")[0].replace("_", "-") for word in words}
    before, after = base.config.optimizer.name, parsed.optimizer.name
    if before != after and parsed.search.learning_rate and "--search.learning-rate" not in named:
        low, high = parsed.search.learning_rate
        raise UserError(
            f"the learning rates of this recipe, from {low:g} to {high:g}, are for {before}, and {after} needs others. "
            "Name them with --search.learning-rate LOW HIGH."
        )
    return _arguments(parsed, base.config.recipe)


def _arguments(parsed: NewSearch, name: str) -> TuneArguments:
    config = Config(**{field: getattr(parsed, field) for field in Config.model_fields})
    recipes.check_preset(config)
    space.check(parsed.search, config)
    if parsed.algorithm == "hyperband" and parsed.trials:
        raise UserError("Hyperband derives the number of trials from --epochs. Leave out --trials.")
    if parsed.cores_per_trial and not parsed.cluster:
        raise UserError(
            "--cores-per-trial is for --cluster. On this machine, the cores are divided among --workers: leave it out."
        )
    if parsed.workers and parsed.cluster:
        raise UserError(
            "--workers is for this machine. A cluster runs as many trials as its cores allow: leave it out."
        )
    trials = None if parsed.algorithm == "hyperband" else parsed.trials or TRIALS
    plan = planned(name, config, parsed.search, algorithm=parsed.algorithm, trials=trials, share=parsed.budget)
    place = parsed.to or Path("searches") / name
    search = Search(
        plan=plan,
        folder=Path(str(place)),
        data_dir=parsed.data_dir,
        workers=parsed.workers or 1,
        cluster=parsed.cluster,
        cores=parsed.cores_per_trial or 1,
    )
    return TuneArguments(search, place, parsed.deadline, parsed.retrain)

"""The plan of a search, fixed when the search starts and stored in its folder, so that a repeated command resumes it.

The folder of a search:

    search.json      the plan
    oracle.json      the state, replaced atomically (`search_state`)
    trials/0007/     run directory of a trial, without weights
    logs/            output of the workers
    trials.csv       one row per trial
    best.json        the winner as a recipe for `highway train`; best-NET.json for each net of a study
    figures/         parallel coordinates and importance
    tensorboard/     hyperparameters and objectives for the HParams page
    retrained/       runs of the winner
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pipelines.core.config import Config, ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.core.frozen import Count, Frozen, Share, read
from pipelines.core.optimizers import scaled
from pipelines.core.plan_file import PlanFile, changes
from pipelines.tuning.space import Value, changed, count, gated, searched

Algorithm = Literal["random", "hyperband", "bayesian"]
FACTOR = 3
"""Reduction factor of Hyperband: each rung keeps a third of the trials and trains them three times as long."""


class Candidate(Frozen):
    """One of the nets that a study compares."""

    name: str
    """Name in tables and figures."""
    model: ModelConfig
    """The net."""


class Budget(Frozen):
    """The full search and the share of it to run."""

    share: Share
    """Share of the full work."""
    trials: Count | None
    """Trials per net of the full search; None if the algorithm decides."""
    epochs: Count
    """Epochs per trial of the full search."""


class SearchPlan(Frozen):
    """The plan of a search."""

    name: str
    """Name of the recipe or study."""
    config: Config
    """Configuration shared by all trials."""
    nets: tuple[Candidate, ...] = ()
    """Nets that replace `config.model` in turn; empty for a search over one net."""
    space: Space
    """Hyperparameters that differ between trials."""
    algorithm: Algorithm
    """Search algorithm."""
    trials: Count | None
    """Trials of all nets together; None for Hyperband, which derives their number from the epochs."""
    budget: Budget
    """Share of the full search."""

    @property
    def fingerprint(self) -> str:
        """Digest of the plan, which `oracles` keeps among the hyperparameters."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Budget in words, for every output; empty for a full search."""
        budget, nets = self.budget, max(1, len(self.nets))
        if budget.share == 1:
            return ""
        parts = [f"{self.config.epochs} of {budget.epochs} epochs"]
        if self.trials and budget.trials:
            parts.insert(0, f"{self.trials // nets} of {budget.trials} trials{' a net' if self.nets else ''}")
        return f"budget {budget.share:g}: {', '.join(parts)}"

    @property
    def settings(self) -> float:
        """Number of different settings of the space, those of all nets together; infinite with a range."""
        return max(1, len(self.nets)) * count(self.space)

    @property
    def work(self) -> list[int]:
        """Epochs of every trial; a promoted trial of Hyperband counts only the epochs that it adds."""
        if self.trials:
            return [self.config.epochs] * int(min(self.trials, self.settings))
        epochs: list[int] = []
        for bracket in hyperband_rungs(self.config.epochs, self.settings):
            before = 0
            for trained, trials in bracket:
                epochs += [trained - before] * trials
                before = trained
        return epochs

    @property
    def exhausts(self) -> bool:
        """True if the algorithm would try more settings than the space has."""
        wanted = self.trials or sum(bracket[0][1] for bracket in hyperband_rungs(self.config.epochs))
        return wanted > self.settings

    def net(self, values: Mapping[str, Value]) -> str:
        """Name of the net of a trial."""
        return str(values["net"]) if self.nets else self.name

    def model(self, values: Mapping[str, Value]) -> ModelConfig:
        """The net of a trial before the sampled values are applied."""
        models = {net.name: net.model for net in self.nets}
        return models[self.net(values)] if models else self.config.model

    def effective(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The sampled values that affect the net of a trial: a net without gates ignores the gate bias."""
        has_gates, listed = gated(self.model(values)), searched(self.space)
        return {
            # KerasTuner turns False and True into 0 and 1.
            name: next((one for one in listed.get(name, ()) if one == value), value)
            for name, value in values.items()
            if has_gates or name != "transform_bias"
        }

    def configured(self, values: Mapping[str, Value]) -> Config:
        """The configuration of a trial.

        Args:
            values: the sampled values.

        Returns:
            The configuration for `pipelines.training`.

        Raises:
            UserError: the values are incompatible.
        """
        return changed(self.config.model_copy(update={"model": self.model(values)}), values)


def planned(
    name: str,
    config: Config,
    space: Space,
    *,
    algorithm: Algorithm,
    trials: int | None,
    share: float = 1.0,
    nets: tuple[Candidate, ...] = (),
) -> SearchPlan:
    """Plans a search within a budget, which reduces trials and epochs by the same factor, and scales the schedule.

    Args:
        name: name of the recipe or study.
        config: configuration shared by all trials, with the epochs of the full search.
        space: hyperparameters that differ between trials.
        algorithm: search algorithm.
        trials: trials per net of the full search; None for Hyperband, where the budget reduces the epochs alone.
        share: share of the full work.
        nets: the nets of a study.

    Returns:
        The plan.

    Example:
        planned("demo", config, space, algorithm="random", trials=100, share=0.01).trials  # 10
    """
    part = share if trials is None else math.sqrt(share)
    fewer = None if trials is None else max(1, round(trials * part))
    epochs = max(1, round(config.epochs * part))
    return SearchPlan(
        name=name,
        config=config.model_copy(
            update={"epochs": epochs, "schedule": scaled(config.schedule, epochs / config.epochs)}
        ),
        nets=nets,
        space=space,
        algorithm=algorithm,
        trials=fewer and fewer * max(1, len(nets)),
        budget=Budget(share=share, trials=trials, epochs=config.epochs),
    )


def _difference(stored: SearchPlan, requested: SearchPlan) -> str:
    return "; ".join(f"{name} was {before} and is {now}" for name, before, now in changes(stored, requested))


SEARCH_FILE = PlanFile(
    "search.json",
    SearchPlan,
    _difference,
    another="{folder} holds another search: {difference}. Repeat its command to resume it, or search in another folder "
    "with --to DIR.",
    foreign="{folder} exists and is not a search folder. Choose another folder with --to DIR.",
    busy="another process is searching in {folder}. Wait for it, or search in another folder with --to DIR.",
    before_work=("logs",),
)
"""Keeps the plan of a search in its folder."""


def open_plan(folder: Path) -> SearchPlan:
    """Reads the plan of a search.

    Raises:
        UserError: the plan is missing, damaged or of another version.
    """
    name = SEARCH_FILE.name
    try:
        return read(folder / name, SearchPlan)
    except FileNotFoundError:
        raise UserError(f"{folder} is not a search folder: it has no {name}. Expected one of `highway tune`.") from None


def hyperband_rungs(longest: int, settings: float = math.inf) -> list[list[tuple[int, int]]]:
    """Lists the rungs of every bracket of a Hyperband search, in the order of the search.

    A space of choices may have fewer settings than the brackets would begin with. A bracket then halves those that the
    brackets before it have left.

    Args:
        longest: epochs of the longest trial.
        settings: number of different settings of the space.

    Returns:
        For each bracket, epochs at the end of each rung and its number of trials, which is 0 if no setting is left.

    Example:
        hyperband_rungs(3)  # [[(1, 3), (3, 1)], [(3, 2)]]
        hyperband_rungs(3, settings=4)  # [[(1, 3), (3, 1)], [(3, 1)]]
    """
    # One bracket for each time that `longest` can be divided by the factor; the first bracket reduces the most.
    brackets, least = 0, float(longest)
    while least >= 1:
        least /= FACTOR
        brackets += 1
    last = math.ceil(1 + math.log(longest, FACTOR))
    found = []
    for bracket in reversed(range(brackets)):
        first = int(min(math.ceil(last / (bracket + 1) * FACTOR**bracket), settings))
        settings -= first
        rungs = range(bracket + 1)
        found.append(
            [(math.ceil(longest / FACTOR ** (bracket - rung)), math.ceil(first / FACTOR**rung)) for rung in rungs]
        )
    return found

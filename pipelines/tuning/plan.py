"""What a search is: fixed when it starts, kept in its folder, and the same when the command is repeated.

The folder of a search:

    search.json      the plan
    oracle.json      how far it is, replaced as a whole (`state`)
    trials/0007/     run directory of a trial, without weights
    logs/            what chief and workers wrote
    trials.csv       one row a trial
    best.json        the winner: a recipe that `highway train` takes; of a study best-NET.json
    figures/         parallel coordinates and importance
    tensorboard/     hyperparameters and objectives for the HParams page
    retrained/       runs of the winner
    kerastuner/      KerasTuner's own notes; nothing is read from them
"""

import hashlib
import math
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal

from pipelines.core.config import Config, Count, Frozen, ModelConfig, Share, Space, read
from pipelines.core.errors import UserError
from pipelines.core.files import held, write_text
from pipelines.recipes.provenance import flat
from pipelines.tuning import hyperband
from pipelines.tuning.space import Value, changed, gated

Algorithm = Literal["random", "hyperband", "bayesian"]
FILE = "search.json"


class Candidate(Frozen):
    """One of the nets that a study compares."""

    name: str
    """What tables and figures call it."""
    model: ModelConfig
    """The net."""


class Budget(Frozen):
    """What was asked for in full, and the share of it that is done."""

    share: Share
    """Of the work of all trials."""
    trials: Count | None
    """In full, of each net; None where the algorithm decides."""
    epochs: Count
    """Of each trial, in full."""


class SearchPlan(Frozen):
    """A search."""

    name: str
    """Of the recipe or the study."""
    config: Config
    """What all trials share."""
    nets: tuple[Candidate, ...] = ()
    """What takes the place of `config.model` in turn; none for a search over one net."""
    space: Space
    """What differs between trials."""
    algorithm: Algorithm
    """What draws the next trial."""
    trials: Count | None
    """Of all nets together; None for Hyperband, which decides itself."""
    budget: Budget
    """How much of the full search this is."""

    @property
    def fingerprint(self) -> str:
        """The same for the same plan, so that a worker of another search is told from its own."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What every output says of a search that is not done in full; empty for one that is."""
        budget, nets = self.budget, max(1, len(self.nets))
        if budget.share == 1:
            return ""
        parts = [f"{self.config.epochs} of {budget.epochs} epochs"]
        if self.trials and budget.trials:
            parts.insert(0, f"{self.trials // nets} of {budget.trials} trials{' a net' if self.nets else ''}")
        return f"budget {budget.share:g}: {', '.join(parts)}"

    @property
    def work(self) -> list[int]:
        """The epochs of every trial; with Hyperband those that it adds to the trial it goes on with."""
        return [self.config.epochs] * self.trials if self.trials else hyperband.epochs(self.config.epochs)

    def net(self, values: Mapping[str, Value]) -> str:
        """Name of the net of a trial."""
        return str(values["net"]) if self.nets else self.name

    def model(self, values: Mapping[str, Value]) -> ModelConfig:
        """The net of a trial, short of what was drawn."""
        models = {net.name: net.model for net in self.nets}
        return models[self.net(values)] if models else self.config.model

    def meant(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Of the values that were drawn for a trial those that mean something to its net, which may have no gates."""
        has_gates = gated(self.model(values))
        return {name: value for name, value in values.items() if has_gates or name != "transform_bias"}

    def configured(self, values: Mapping[str, Value]) -> Config:
        """The configuration of a trial.

        Args:
            values: drawn for it.

        Returns:
            What `pipelines.training` takes.

        Raises:
            UserError: the values do not go together.
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
    """A plan within a budget.

    Half of what is saved is saved on the number of trials, half on their epochs.

    Args:
        name: of the recipe or the study.
        config: what all trials share; its epochs are those of the full search.
        space: what differs.
        algorithm: what draws the next trial.
        trials: of each net, in full; None for Hyperband, where all is saved on epochs.
        share: of the full work.
        nets: of a study.

    Returns:
        The plan.

    Example:
        planned("demo", config, space, algorithm="random", trials=100, share=0.01).trials  # 10
    """
    part = share if trials is None else math.sqrt(share)
    fewer = None if trials is None else max(1, round(trials * part))
    return SearchPlan(
        name=name,
        config=config.model_copy(update={"epochs": max(1, round(config.epochs * part))}),
        nets=nets,
        space=space,
        algorithm=algorithm,
        trials=fewer and fewer * max(1, len(nets)),
        budget=Budget(share=share, trials=trials, epochs=config.epochs),
    )


def open_plan(folder: Path) -> SearchPlan:
    """The plan of a search.

    Raises:
        UserError: there is none, or it is damaged or of another version.
    """
    path = folder / FILE
    try:
        return read(path, SearchPlan)
    except FileNotFoundError:
        raise UserError(f"{folder} is no search: {FILE} is missing. Expected what `highway tune` made.") from None


def keep(plan: SearchPlan, folder: Path) -> None:
    """Writes the plan into its folder, which is made, or finds the same plan there.

    Raises:
        UserError: something else lies there, or another search.
    """
    path = folder / FILE
    if path.exists():
        _same(open_plan(folder), plan, folder)
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and is no search. Take another folder with --to DIR.")
    write_text(path, plan.model_dump_json(indent=2) + "\n")


def forget(folder: Path) -> None:
    """Removes what is in the folder of a search that never began, and the folder if nothing else is there."""
    (folder / FILE).unlink(missing_ok=True)
    for name in ("kerastuner", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def locked(folder: Path) -> AbstractContextManager[None]:
    """Holds the search for this process, until the block ends or the process dies.

    Raises:
        UserError: another process holds it.
    """
    return held(
        folder / FILE,
        f"another process searches in {folder}. Wait for it, or search in another folder with --to DIR.",
    )


def _same(kept: SearchPlan, asked: SearchPlan, folder: Path) -> None:
    before, now = flat(kept), flat(asked)
    other = [f"{name} was {before.get(name)} and is {now[name]}" for name in now if before.get(name) != now[name]]
    if other:
        raise UserError(
            f"the search in {folder} is another one: {'; '.join(other)}. Repeat its own command to go on with it, or "
            "search in another folder with --to DIR."
        )

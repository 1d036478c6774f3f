"""The nets of the study `conv-gate`, with their learning rates and times of a step."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines import recipes
from pipelines.core.config import Provenance
from pipelines.core.plotting import BLUE, GREEN, ORANGE
from pipelines.studies.framework.study import CIFAR, Arm

HIGHWAY = "cifar10_modern"
EPOCHS, HELD_OUT = 20, 5000
WIDTH = 14
"""Channels of the highway net's first block; all layers have as large a share of the recipe's (48). Two cores thus need
hours and not days, the parameters of the nets agree within 1%, and no net has channels in multiples of 16, with which
the steps of one net alone would be a quarter faster on CPUs."""


@dataclass(frozen=True)
class TunedNet:
    """A net of the comparison.

    Args:
        recipe: recipe of the net.
        colour: colour in figures.
        rate: learning rate, the best of those that the short schedule tries on held-out images
            (docs/results/conv-gate-short).
        step: milliseconds of a training step (`python -m benchmarks gate_steps`).
    """

    recipe: str
    colour: str
    rate: float
    step: float


NETS = {
    "highway": TunedNet(HIGHWAY, BLUE, rate=0.4, step=191.6),
    "residual": TunedNet(f"{HIGHWAY}_residual", GREEN, rate=0.4, step=205.6),
    "plain": TunedNet(f"{HIGHWAY}_plain", ORANGE, rate=0.4, step=206.1),
}


def equal_time(steps: Mapping[str, float]) -> dict[str, int]:
    """Returns the epochs of each net in the time in which the slowest net has `EPOCHS`.

    Args:
        steps: time of a training step of each net.

    Example:
        equal_time({"highway": 6.0, "plain": 5.0})  # {"highway": 20, "plain": 24}
    """
    return {net: round(EPOCHS * max(steps.values()) / step) for net, step in steps.items()}


def arm(net: TunedNet, rate: float, epochs: int = EPOCHS) -> Arm:
    """Builds the arm that trains a net with a learning rate.

    Args:
        net: the net; one without gates gets as many parameters as the highway net.
        rate: learning rate.
        epochs: epochs of the one-cycle schedule.

    Example:
        arm(NETS["plain"], 0.2).config.model.match  # "parameters"
    """
    recipe = recipes.get(net.recipe)
    config, ours = recipe.config, (*recipe.provenance.assumed, "validation")
    model, ours = config.model.model_copy(update={"width": WIDTH}), (*ours, "model.width")
    if net.recipe != HIGHWAY:
        model, ours = model.model_copy(update={"match": "parameters"}), (*ours, "model.match")
    changed = {
        "model": model,
        "optimizer": config.optimizer.model_copy(update={"learning_rate": rate}),
        "epochs": epochs,
        "validation": HELD_OUT,
    }
    return Arm(
        config=config.model_copy(update=changed),
        provenance=Provenance(assumed=ours),
        data=CIFAR.model_copy(update={"train": CIFAR.train - HELD_OUT}),
    )

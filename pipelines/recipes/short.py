"""Short schedules of 10 epochs for CPUs, on which the recorded ones take days.

Command     highway reproduce cifar10 --schedule short   (cifar100, fitnets)
Net, data   as in the recipe
Sources     one cycle: all numbers are ours. The learning rate rises linearly for 2 epochs, then falls to zero along a
            cosine. Its maximum is the recorded rate, at which these nets are known to learn; no other was tried.
            Beginning: as the recorded rate is constant for the first 200 epochs, these are the first 10 epochs of the
            full training, up to the first waypoint of the authors' CIFAR-10 log (5,000 steps). No result is
            comparable with the paper's
"""

from pipelines.core.config import Config, Provenance, Recipe
from pipelines.core.frozen import flat
from pipelines.core.optimizers import CosineSchedule

EPOCHS = 10
RISE = 1000
"""Warm-up steps: 2 epochs of CIFAR."""


def one_cycle(recipe: Recipe) -> Recipe:
    """Shortens a recipe to `EPOCHS` with one cycle of the learning rate.

    Args:
        recipe: recipe of a full training by SGD on 50,000 examples.

    Returns:
        The short recipe; all its numbers are tagged as assumed.

    Example:
        one_cycle(recipes.get("cifar10_19")).config.epochs  # 10
    """
    config, tags = recipe.config, recipe.provenance
    short = config.model_copy(
        update={"schedule": CosineSchedule(warmup_steps=RISE), "epochs": EPOCHS},
    )
    fields = flat(short)
    kept = [tag for tag in (*tags.recorded, *tags.count_matched, *tags.assumed) if tag in fields]
    return _short(recipe, short, Provenance(assumed=(*kept, "schedule.warmup_steps")))


def beginning(recipe: Recipe) -> Recipe:
    """Cuts a recipe down to its first `EPOCHS`, during which its learning rate is constant.

    Args:
        recipe: recipe of the full training.

    Returns:
        The short recipe; only the number of epochs is ours.
    """
    tags = recipe.provenance
    recorded = tuple(tag for tag in tags.recorded if tag != "epochs")
    tagged = tags.model_copy(update={"recorded": recorded, "assumed": (*tags.assumed, "epochs")})
    return _short(recipe, recipe.config.model_copy(update={"epochs": EPOCHS}), tagged)


def _short(recipe: Recipe, config: Config, provenance: Provenance) -> Recipe:
    return Recipe(config=config, source=f"a short schedule of {recipe.name}", published="none", provenance=provenance)

"""Short trainings for a CPU, of nets whose recorded one is out of its reach; of 10 epochs.

Command     highway reproduce cifar10 --schedule short   (cifar100, fitnets)
Net, data   those of the recipe
Sources     one cycle: all numbers are ours. The rate rises in a line for 2 epochs, then falls to zero along a cosine;
            its highest is the recorded one, at which these nets are known to learn: no other was tried.
            The beginning: the recorded rate, which is constant for the first 200 epochs, so that its 10 epochs are
            those of the full training. 10 epochs are the 5 000 steps after which the authors' log of CIFAR-10 has its
            first waypoint. No result must be set against the paper's
"""

from pipelines.core.config import Config, CosineSchedule, Provenance, Recipe
from pipelines.recipes.provenance import flat

EPOCHS = 10
RISE = 1000
"""Steps in which the rate rises: 2 epochs of CIFAR."""


def one_cycle(recipe: Recipe) -> Recipe:
    """The same net and data, trained for `EPOCHS` with one cycle of the learning rate.

    Args:
        recipe: of a full training by SGD on 50 000 examples.

    Returns:
        The short recipe. Every number counts as assumed, as no source trained so.

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
    """The first `EPOCHS` of a full training: as its rate is constant until later, every step is that of the full one.

    Args:
        recipe: of the full training.

    Returns:
        The short recipe. Only its end is ours.
    """
    tags = recipe.provenance
    recorded = tuple(tag for tag in tags.recorded if tag != "epochs")
    tagged = tags.model_copy(update={"recorded": recorded, "assumed": (*tags.assumed, "epochs")})
    return _short(recipe, recipe.config.model_copy(update={"epochs": EPOCHS}), tagged)


def _short(recipe: Recipe, config: Config, provenance: Provenance) -> Recipe:
    return Recipe(config=config, source=f"a short training of {recipe.name}", published="none", provenance=provenance)

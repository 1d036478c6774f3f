"""The plain and residual twins of a recipe: the same data and training with another net."""

from pipelines.core.config import Provenance, Recipe

KINDS = ("plain", "residual")


def twins(recipe: Recipe) -> tuple[Recipe, ...]:
    """Derives the twins of a recipe; their nets are the presets `NAME_plain` and `NAME_residual`.

    Args:
        recipe: a recipe whose net is a highway net.

    Returns:
        The plain and the residual twin. All numbers are tagged as assumed: no source trained these nets this way.
    """
    return tuple(_twin(recipe, kind) for kind in KINDS)


def _twin(recipe: Recipe, kind: str) -> Recipe:
    model = recipe.config.model.model_copy(update={"preset": f"{recipe.config.model.preset}_{kind}"})
    config = recipe.config.model_copy(update={"recipe": f"{recipe.name}_{kind}", "model": model})
    tags = recipe.provenance
    return Recipe(
        config=config,
        source=f"{kind} twin of {recipe.name}",
        published="none",
        search=recipe.search.model_copy(update={"transform_bias": ()}),
        provenance=Provenance(assumed=(*tags.recorded, *tags.count_matched, *tags.assumed)),
    )

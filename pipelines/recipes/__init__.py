"""Recipes: named, complete configurations with the source of every number. Imports no framework.

Each file holds a family of results; `twins` derives their plain and residual twins.
"""

from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from pipelines.core.config import Recipe
from pipelines.core.errors import UserError, unknown
from pipelines.core.field_help import explain
from pipelines.recipes import cifar, demo, dense, dense_1000, factor, fitnet, mnist_conv, modern
from pipelines.recipes.twins import twins

_FAMILIES = (demo, mnist_conv, cifar, modern, fitnet, dense, dense_1000, factor)
_RECIPES: dict[str, tuple[Recipe, ModuleType]] = {
    recipe.name: (recipe, family)
    for family in _FAMILIES
    for original in family.RECIPES
    for recipe in (original, *(twins(original) if family not in (demo, dense_1000) else ()))
}


def names() -> tuple[str, ...]:
    """Returns the names of all recipes, each followed by its twins."""
    return tuple(_RECIPES)


def get(name: str) -> Recipe:
    """Returns a recipe by name.

    Args:
        name: one of `names()`.

    Returns:
        The recipe.

    Raises:
        UserError: no recipe has this name; the error suggests the nearest one.

    Example:
        get("mnist_conv_32").config.epochs  # 300
    """
    if name not in _RECIPES:
        raise unknown("recipe", name, names())
    return _RECIPES[name][0]


def named_recipe(word: str) -> Recipe:
    """Returns the recipe with a name, or the recipe in a file that `highway tune` wrote (best.json).

    Raises:
        UserError: no recipe has this name, or the file is missing or not a recipe.
    """
    path = Path(word)
    if path.suffix != ".json":
        return get(word)
    try:
        return Recipe.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"the recipe file {path} cannot be read: {error.strerror}. Check the path.") from None
    except ValidationError as error:
        raise UserError(f"{path} is not a recipe file: {explain(error, Recipe)}") from None


def header(name: str) -> str:
    """Returns the header of a recipe's family: paper, data, command and measurements."""
    return (_RECIPES[get(name).name][1].__doc__ or "").strip()

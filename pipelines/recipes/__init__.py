"""Recipes: named, complete configurations with the source of every number. Imports no framework.

Each file holds a family of results; `twins` derives their plain and residual twins.
"""

import json
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from pipelines.core import user_code
from pipelines.core.config import Config, Provenance, Recipe
from pipelines.core.errors import UserError, unknown
from pipelines.core.field_help import explain
from pipelines.core.files import write_text
from pipelines.core.sync import fetched
from pipelines.core.url import location
from pipelines.recipes import cifar, demo, dense, dense_1000, factor, fitnet, mnist_conv, modern, table
from pipelines.recipes.twins import twins

_FAMILIES = (demo, mnist_conv, cifar, modern, fitnet, dense, dense_1000, factor, table)
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


def check_preset(config: Config) -> None:
    """Refuses a preset that does not exist, before a framework is loaded; the user's own functions are not looked up.

    Raises:
        UserError: no recipe has this preset, and every preset is that of a recipe.
    """
    presets = {recipe.config.model.preset for recipe, _ in _RECIPES.values()}
    if config.model.preset not in presets and not user_code.is_function(config.model.preset):
        raise unknown("preset", config.model.preset, presets)


def named_recipe(word: str) -> Recipe:
    """Returns the recipe with a name, or that in a JSON file.

    Args:
        word: one of `names()`; or path or URL of a file that ends in `.json`: a recipe, as `highway recipes new` and
            `highway tune` write them, or the `config.json` of a run.

    Raises:
        UserError: no recipe has this name, or the file is missing or not a recipe.
    """
    place = location(word)
    if place.suffix != ".json":
        return get(word)
    with fetched(place) as path:
        return _read(path, word)


def _read(path: Path, word: str) -> Recipe:
    kind: type[Recipe | Config] = Recipe
    try:
        content = json.loads(path.read_bytes())
        # A configuration names its recipe; a recipe has a configuration.
        kind = Config if isinstance(content, dict) and "recipe" in content else Recipe
        found = kind.model_validate(content, strict=False)
    except OSError as error:
        raise UserError(f"the recipe file {path} cannot be read: {error.strerror}. Check the path.") from None
    except ValidationError as error:
        raise UserError(f"{path} is not a recipe file: {explain(error, kind)}") from None
    except ValueError as error:
        raise UserError(f"{path} is not a recipe file: it is not JSON ({error}).") from None
    if isinstance(found, Recipe):
        return found
    return Recipe(config=found, source=f"the configuration {word}", published="none", provenance=Provenance())


def like(recipe: Recipe, name: str) -> Recipe:
    """Returns a copy of a recipe under a new name, for the user to edit and to add its provenance."""
    config = recipe.config.model_copy(update={"recipe": name})
    source = f"like {recipe.name}"
    return Recipe(config=config, source=source, published="none", provenance=Provenance(), search=recipe.search)


def write(recipe: Recipe, path: Path) -> None:
    """Writes a recipe to a new JSON file; provenance and measurements, which `like` leaves empty, are left out.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    if path.exists():
        raise UserError(f"{path} exists already, and is not overwritten. Name another file.")
    write_text(path, recipe.model_dump_json(indent=2, exclude={"provenance", "measured"}, by_alias=True) + "\n")


def header(name: str) -> str:
    """Returns the header of a recipe's family (paper, data, command, measurements); nothing for the user's own."""
    return (_RECIPES[name][1].__doc__ or "").strip() if name in _RECIPES else ""

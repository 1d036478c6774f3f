"""`highway recipes`: lists the recipes, shows the source of each number, and writes the user's own recipes."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from pipelines import recipes
from pipelines.core.config import Recipe
from pipelines.core.console import next_command, say, table_console
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen, flat
from pipelines.core.parsing import parse
from pipelines.recipes.provenance import tags
from pipelines.recipes.twins import KINDS

LEGEND = """\
recorded       read in the authors' own files or printed in the paper
count-matched  chosen so that the parameter count meets the paper's
assumed        ours, because the source is silent
default        not set by the recipe
Any field can be overridden on the command line:"""


DESCRIPTION = """Lists the recipes, shows the numbers of one, or writes one of your own.

  highway recipes show cifar10_19                   every number, and where it comes from
  highway recipes new mine.json --like cifar10_19   a copy to edit; highway train mine.json trains it
  highway recipes show mine.json
  highway recipes schema                            JSON Schema of such files, for editors"""


class Arguments(Frozen):
    """The arguments of `highway recipes`."""

    action: tyro.conf.Positional[Literal["list", "show", "new", "schema"]] = "list"
    """List all recipes, show every number of one, write a new one, or print the schema of recipe files."""
    name: tyro.conf.Positional[str | None] = None
    """The recipe to show, a name or a file; or the file to write."""
    like: str | None = None
    """The recipe that a new one is copied from: a name or a file."""


def main(arguments: list[str]) -> None:
    """Prints the list of recipes, or one recipe with the provenance of each number; or writes one to a file.

    Args:
        arguments: the words after `highway recipes`.

    Raises:
        UserError: a recipe is missing or unknown, or the file to write exists.
    """
    asked = parse(Arguments, arguments, "highway recipes", DESCRIPTION)
    if asked.like is not None and asked.action != "new":
        raise UserError(f"--like is for 'highway recipes new'. Received: highway recipes {asked.action}.")
    console = table_console()
    if asked.action == "show":
        if asked.name is None:
            raise UserError(
                f"which recipe? The command is highway recipes show NAME. Choices: {', '.join(recipes.names())}."
            )
        _show(console, asked.name)
    elif asked.action == "new":
        _write(asked.name, asked.like)
    elif asked.action == "schema":
        sys.stdout.write(json.dumps(Recipe.model_json_schema(), indent=2) + "\n")
    elif asked.name is not None:
        raise UserError(f"'list' takes no name. Did you mean: highway recipes show {asked.name}")
    else:
        _list(console)


def _list(console: Console) -> None:
    table = _table(console, "recipe", "data", "source", "published")
    names = recipes.names()
    originals = [name for name in names if not name.endswith(KINDS)]
    for name in originals:
        recipe = recipes.get(name)
        table.add_row(name, recipe.config.data, recipe.source, recipe.published)
    console.print(table)
    alone = " and ".join(name for name in originals if f"{name}_{KINDS[0]}" not in names)
    say(console, f"Twins for comparison, except for {alone}: NAME_plain and NAME_residual.")
    say(console, "highway recipes show NAME lists every number; highway train NAME trains it.")


def _write(name: str | None, like: str | None) -> None:
    if name is None or like is None:
        raise UserError("a new recipe needs a file and a start: highway recipes new mine.json --like cifar10_19")
    path = Path(name)
    if path.suffix != ".json":
        json = path.with_suffix(".json") if path.suffix in {".yaml", ".yml", ".toml", ".py"} else f"{name}.json"
        command = shlex.join(["highway", "recipes", "new", str(json), "--like", like])
        raise UserError(f"recipe files end in .json. Did you mean: {command}")
    recipes.write(recipes.like(recipes.named_recipe(like), path.stem), path)
    sys.stdout.write(f"{path}: a copy of {like}. Edit it, and train it with: {next_command('train', path)}\n")


def _show(console: Console, name: str) -> None:
    recipe = recipes.named_recipe(name)
    tag = tags(recipe)
    table = _table(console, "field", "value", "source")
    for field, value in flat(recipe.config).items():
        table.add_row(field, _text(value), tag.get(field, "default"))
    say(console, f"{recipe.name}: {recipe.source}. Published: {recipe.published}. {recipe.measured}".rstrip() + "\n")
    if header := recipes.header(name):
        say(console, f"{header}\n")
    console.print(table)
    say(console, f"\n{LEGEND}\n  {next_command('train', name)} --epochs {recipe.config.epochs}")
    bounds = {parameter: values for parameter, values in flat(recipe.search).items() if values}
    if bounds:
        say(console, "highway tune searches within these bounds, which are ours:")
    for parameter, values in bounds.items():
        say(console, f"  --search.{parameter.replace('_', '-')} {_text(values)}")


def _table(console: Console, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return repr(value) if len(repr(value)) < 9 else f"{value:.4g}"
    return "none" if value is None else str(value)

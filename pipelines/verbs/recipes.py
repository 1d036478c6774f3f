"""`highway recipes`: lists the recipes and shows the source of each number."""

from functools import partial
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from pipelines import recipes
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.recipes.provenance import flat, tags
from pipelines.recipes.twins import KINDS

LEGEND = """\
recorded       read in the authors' own files or printed in the paper
count-matched  chosen so that the parameter count meets the paper's
assumed        ours, because the source is silent
default        not set by the recipe
Any field can be overridden on the command line:"""


class Arguments(Frozen):
    """The arguments of `highway recipes`."""

    action: tyro.conf.Positional[Literal["list", "show"]] = "list"
    """List all recipes, or show every number of one of them."""
    name: tyro.conf.Positional[str | None] = None
    """The recipe to show."""


def main(arguments: list[str]) -> None:
    """Prints the list of recipes, or one recipe with the provenance of each number.

    Args:
        arguments: the words after `highway recipes`.

    Raises:
        UserError: the recipe to show is missing or unknown.
    """
    asked = parse(Arguments, arguments, "highway recipes", "Lists the recipes, or shows the numbers of one.")
    console = Console()
    if not console.is_terminal:
        # Output to a program must not be wrapped.
        console = Console(width=400)
    if asked.action == "show":
        if asked.name is None:
            raise UserError(
                f"which recipe? The command is highway recipes show NAME. Choices: {', '.join(recipes.names())}."
            )
        _show(console, asked.name)
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
    console.print(f"Twins for comparison, except for {alone}: NAME_plain and NAME_residual.", highlight=False)
    console.print("highway recipes show NAME lists every number; highway train NAME trains it.", highlight=False)


def _show(console: Console, name: str) -> None:
    recipe = recipes.get(name)
    tag = tags(recipe)
    table = _table(console, "field", "value", "source")
    for field, value in flat(recipe.config).items():
        table.add_row(field, _text(value), tag.get(field, "default"))
    say = partial(console.print, highlight=False, markup=False)
    say(f"{recipe.name}: {recipe.source}. Published: {recipe.published}. {recipe.measured}".rstrip() + "\n")
    say(f"{recipes.header(name)}\n")
    say(table)
    say(f"\n{LEGEND}\n  highway train {recipe.name} --epochs {recipe.config.epochs}")
    bounds = {parameter: values for parameter, values in flat(recipe.search).items() if values}
    if bounds:
        say("highway tune searches within these bounds, which are ours:")
    for parameter, values in bounds.items():
        say(f"  --search.{parameter.replace('_', '-')} {_text(values)}")


def _table(console: Console, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)

"""`highway completion`: a script with which a shell completes verbs, options and names."""

import importlib
import sys
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

import tyro
from pydantic import BaseModel

from pipelines import recipes, studies
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import every_option, parse
from pipelines.verbs import VERBS

# The models of the options of verbs that have more than `Arguments`.
MODELS = {"train": ("NewRun", "ResumedRun"), "tune": ("NewSearch",)}
# A field of configurations that is not an option.
RECIPE = "--recipe"
NAMES = dict.fromkeys(("train", "tune", "recipes", "data"), recipes.names) | {"reproduce": studies.names}
"""Function that lists the names that may follow a verb."""
BASH = """_highway() {{
    local words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{verbs}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _highway highway
"""


class Arguments(Frozen):
    """Prints a script that completes verbs, options and names in a shell.

    bash:  source <(highway completion bash), in ~/.bashrc
    zsh:   source <(highway completion zsh), in ~/.zshrc
    fish:  highway completion fish > ~/.config/fish/completions/highway.fish
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway completion`.

    Raises:
        UserError: the shell is unknown.
    """
    shell = parse(Arguments, arguments, "highway completion", Arguments.__doc__ or "").shell
    known = {verb: list(_words(verb)) for verb in VERBS}
    if shell == "fish":
        sys.stdout.write(_fish(known))
    else:
        # zsh runs bash's completions.
        head = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
        cases = "\n".join(f'            {verb}) words="{" ".join(words)}" ;;' for verb, words in known.items())
        sys.stdout.write(head + BASH.format(verbs=" ".join(known), cases=cases))


def _words(verb: str) -> Iterator[str]:
    """Yields the words that may follow a verb."""
    module = importlib.import_module(f"{__package__}.{verb}")
    models: list[type[BaseModel]] = [getattr(module, name) for name in MODELS.get(verb, ("Arguments",))]
    for field in models[0].model_fields.values():
        if tyro.conf.Positional in field.metadata and get_origin(kind := field.annotation) is Literal:
            yield from map(str, get_args(kind))
    yield from NAMES[verb]() if verb in NAMES else ()
    yield from dict.fromkeys(option for model in models for option in every_option(model) if option != RECIPE)
    yield "--help"


def _fish(known: dict[str, list[str]]) -> str:
    lines = [f"complete -c highway -n __fish_is_first_arg -xa '{' '.join(known)}'"]
    for verb, words in known.items():
        lines.append(f"complete -c highway -n '__fish_seen_subcommand_from {verb}' -a '{' '.join(words)}'")
    return "\n".join(lines) + "\n"

"""From the words of the command line to typed values: the arguments of a verb, or a configuration with its overrides.

tyro matches the words with the fields and writes the help; pydantic reads and checks every value, so that a wrong one
is told in the same words whether it came from the command line or from a file.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_origin

import tyro
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from tyro.constructors import (
    MISSING,
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from pipelines.core.config import Config
from pipelines.core.errors import UserError, nearest
from pipelines.core.field_help import explain, is_group, options, placeholder, several

Arguments = TypeVar("Arguments", bound=BaseModel)
Settings = TypeVar("Settings", bound=Config)


def parse(kind: type[Arguments], arguments: list[str], prog: str, description: str) -> Arguments:
    """Reads the arguments of a verb.

    Args:
        kind: a pydantic model, best a `pipelines.core.config.Frozen`; the docstring under a field becomes its help. A
            field of type `tyro.conf.Positional[...]` is given by its place, any other as `--field-name VALUE`.
        arguments: the words after the verb.
        prog: what stands before them ("highway export").
        description: the first lines of the help.

    Returns:
        The checked arguments.

    Raises:
        UserError: an option is unknown or a value is wrong.
        SystemExit: after `--help` (status 0), or when a required argument or the value of an option is missing (2).

    Example:
        class Arguments(Frozen):
            run: tyro.conf.Positional[Path]
            "The run to export."
            to: Path | None = None
            "The model's folder; none is models/NAME."

        parse(Arguments, ["runs/demo", "--to", "models/digits"], "highway export", "Writes a version of a model.")
    """
    return _checked(kind, _read(kind, arguments, prog, description))


def parse_over(kind: type[Settings], default: Settings, arguments: list[str], prog: str, description: str) -> Settings:
    """Reads options that override a configuration.

    A schedule of another kind than the default's starts without its boundaries, which only a step schedule has.

    Args:
        kind: a `Config` with further fields.
        default: the values of all fields that are not given.
        arguments: the words after the recipe.
        prog: what stands before them.
        description: the first lines of the help.

    Returns:
        The checked values.

    Raises:
        UserError: an option is unknown or a value is wrong.
        SystemExit: as `parse`.
    """
    values = _read(kind, arguments, prog, description, default=default, hidden=("recipe",))
    schedule = values["schedule"]
    # tyro hands an untouched default back as it is, so a tuple that is the recipe's own was not given by the user.
    if schedule["kind"] != default.schedule.kind and schedule["boundaries"] is default.schedule.boundaries:
        schedule["boundaries"] = ()
    return _checked(kind, {"recipe": default.recipe, **values})


def _read(
    kind: type[BaseModel],
    arguments: list[str],
    prog: str,
    description: str,
    *,
    default: BaseModel | None = None,
    hidden: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Gives every field of `kind` its words from the command line, or its default; nothing is checked yet."""
    registry = ConstructorRegistry()

    @registry.struct_rule
    def model(info: StructTypeInfo) -> StructConstructorSpec | None:
        if not is_group(info.type):
            return None
        given = info.default if isinstance(info.default, BaseModel) else None
        shown = {name: field for name, field in info.type.model_fields.items() if name not in hidden}
        return StructConstructorSpec(dict, tuple(_field(name, field, given) for name, field in shown.items()))

    values, rest = tyro.cli(
        kind,
        args=arguments,
        prog=prog,
        description=description,
        default=MISSING if default is None else default,
        registry=registry,
        return_unknown_args=True,
    )
    if rest:
        raise _unknown(rest[0], sorted(_options(kind, hidden)), prog)
    return values


def _field(name: str, field: FieldInfo, given: BaseModel | None) -> StructFieldSpec:
    default = getattr(given, name) if given else MISSING if field.is_required() else field.get_default()
    kind: Any = field.annotation
    if kind is not bool and not is_group(kind):
        kind = Annotated[(object, _words(name, field), *field.metadata)]
    return StructFieldSpec(name, kind, default, field.description)


def _words(name: str, field: FieldInfo) -> PrimitiveConstructorSpec[Any]:
    """Takes the words for a field as they are; only "none" is read, as pydantic takes no word for None."""
    takes_none = type(None) in options(field)
    many = several(field)

    def read(words: list[str]) -> Any:
        return words if many else None if takes_none and words[0] in ("none", "None") else words[0]

    def write(value: Any) -> list[str]:
        return [str(item) for item in value] if many else ["none" if value is None else str(value)]

    return PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=placeholder(field) if get_origin(field.annotation) is Literal or not _by_place(field) else name.upper(),
        instance_from_str=read,
        is_instance=lambda _: True,
        str_from_instance=write,
    )


def _checked(kind: type[Arguments], values: dict[str, Any]) -> Arguments:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(explain(error, kind, lambda path: _called(kind, path))) from None


def _called(kind: type[BaseModel], path: tuple[str, ...]) -> str:
    first = kind.model_fields.get(path[0]) if path else None
    return path[0].upper() if first and _by_place(first) else _option(path)


def _by_place(field: FieldInfo) -> bool:
    return tyro.conf.Positional in field.metadata


def _options(kind: type[BaseModel], hidden: tuple[str, ...] = (), path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if is_group(field.annotation):
            yield from _options(field.annotation, (), (*path, name))
        elif name not in hidden and not _by_place(field):
            yield _option((*path, name))


def _option(path: tuple[str, ...]) -> str:
    return "--" + ".".join(path).replace("_", "-")


def _unknown(word: str, known: list[str], prog: str) -> UserError:
    if not word.startswith("-"):
        return UserError(f"'{word}' is one word too many. `{prog} --help` tells what is expected.")
    word = word.partition("=")[0]
    # --momentum for --optimizer.momentum is the commonest slip, and no likeness of letters finds it as surely.
    close = next((option for option in known if option.rpartition(".")[2] == word.strip("-")), nearest(word, known))
    hint = f"Did you mean '{close}'? " if close else ""
    return UserError(f"there is no option '{word}'. {hint}`{prog} --help` lists them all.")

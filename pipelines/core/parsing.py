"""Parses the command line into typed values: the arguments of a verb, or a configuration and its overrides.

tyro matches words to fields and writes the help; pydantic converts and checks every value, so that errors read the same
on the command line and in a file.
"""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from pathlib import Path
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
from pipelines.core.console import printable
from pipelines.core.errors import UserError, nearest
from pipelines.core.field_help import explain, is_group, members, options, placeholder, quoted, several
from pipelines.core.url import Url, is_url

Arguments = TypeVar("Arguments", bound=BaseModel)
Settings = TypeVar("Settings", bound=Config)
# Common abbreviations of field names.
ABBREVIATIONS = {
    "lr": "learning-rate",
    "wd": "weight-decay",
    "bs": "batch-size",
    "batch": "batch-size",
    "dataset": "data",
    "epoch": "epochs",
    "gate-bias": "transform-bias",
    "steps": "epochs",
    "name": "to",
}
# Lines of tyro's boxes: an option without its value; the name of an argument, indented; the frame.
_NO_VALUE = re.compile(r"Missing value for argument '([^']+)'")
_NO_ARGUMENT = re.compile(r"^│ {5}([A-Z][A-Z_]*) *│$", re.MULTILINE)
_BOX = re.compile("[─-╿]")


def parse(kind: type[Arguments], arguments: list[str], prog: str, description: str = "") -> Arguments:
    """Parses the arguments of a verb.

    Args:
        kind: a pydantic model, usually a `pipelines.core.frozen.Frozen`; the docstring under a field is its help. A
            field of type `tyro.conf.Positional[...]` is positional, any other is `--field-name VALUE`.
        arguments: the words after the verb.
        prog: the words before them ("highway export").
        description: the first lines of the help; by default the docstring of `kind`.

    Returns:
        The checked arguments.

    Raises:
        UserError: an option is unknown, a value is wrong, or a value or argument is missing.
        SystemExit: after `--help`, with status 0.

    Example:
        class Arguments(Frozen):
            run: tyro.conf.Positional[Path]
            "The run to export."
            to: Path | None = None
            "The model's folder; none is models/NAME."

        parse(Arguments, ["runs/demo", "--to", "models/digits"], "highway export", "Writes a version of a model.")
    """
    return _checked(kind, _read(kind, arguments, prog, description or kind.__doc__ or ""))


def parse_over(kind: type[Settings], default: Settings, arguments: list[str], prog: str, description: str) -> Settings:
    """Parses options that override a configuration.

    An optimizer or schedule that differs from the default's starts from its own defaults.

    Args:
        kind: a `Config` with further fields.
        default: the values of the fields that are not given.
        arguments: the words after the recipe.
        prog: the words before them.
        description: the first lines of the help.

    Returns:
        The checked values.

    Raises:
        UserError: an option is unknown or a value is wrong.
        SystemExit: see `parse`.
    """
    values = _read(kind, arguments, prog, description, default=default, hidden=("recipe",))
    return _checked(kind, {"recipe": default.recipe, **values})


def every_option(kind: type[BaseModel]) -> list[str]:
    """Lists the options of a verb, with those of every member of a tagged union, such as every optimizer.

    Args:
        kind: the verb's pydantic model; see `parse`.

    Example:
        every_option(Config)  # ["--recipe", "--model.preset", ..., "--optimizer.momentum", ...]
    """
    found: dict[str, None] = {}
    for name, field in kind.model_fields.items():
        groups: list[Any] = [*members(field).values()] or [field.annotation]
        for group in groups:
            if is_group(group):
                found |= dict.fromkeys(_options(group, {}, (), (name,)))
            elif not _positional(field):
                found[_option((field.alias or name,))] = None
    return list(found)


def _read(
    kind: type[BaseModel],
    arguments: list[str],
    prog: str,
    description: str,
    *,
    default: BaseModel | None = None,
    hidden: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Returns the words for every field of `kind`, or the field's default; nothing is checked yet."""
    registry = ConstructorRegistry()
    chosen = _chosen(kind, arguments, default)
    tags = {member: kind.model_fields[name] for name, member in chosen.items()}

    @registry.struct_rule
    def model(info: StructTypeInfo) -> StructConstructorSpec | None:
        if not is_group(info.type):
            return None
        given = info.default if isinstance(info.default, BaseModel) else None
        fields = []
        for name, field in info.type.model_fields.items():
            if name in chosen and info.type is kind:
                fields.append(_union_field(name, chosen[name], given))
            elif info.type in tags and name == tags[info.type].discriminator:
                fields.append(_tag_field(name, members(tags[info.type]), given))
            elif name not in hidden:
                fields.append(_field(name, field, given))
        return StructConstructorSpec(dict, tuple(fields))

    refusal = io.StringIO()
    try:
        with redirect_stderr(refusal):
            values, rest = tyro.cli(
                kind,
                args=arguments,
                prog=prog,
                description=description,
                default=MISSING if default is None else default,
                registry=registry,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise _missing(refusal.getvalue(), prog) from None
    if rest:
        raise _unknown(rest[0], kind, chosen, hidden, prog)
    return values


def _missing(boxed: str, prog: str) -> UserError:
    """Returns the error for a value or an argument that is missing, which tyro prints in a box."""
    if option := _NO_VALUE.search(boxed):
        return UserError(f"{option[1]} needs a value. `{prog} --help` describes it.")
    if names := _NO_ARGUMENT.findall(boxed):
        return UserError(f"missing: {' '.join(names)}. `{prog} --help` describes what is expected.")
    return UserError(" ".join(_BOX.sub(" ", boxed).split()))


def _chosen(kind: type[BaseModel], arguments: list[str], default: BaseModel | None) -> dict[str, type[BaseModel]]:
    """Returns the member of each tagged union: the one that the last tag on the command line names, or the default's.

    Raises:
        UserError: there is no such member.
    """
    chosen = {}
    for name, field in kind.model_fields.items():
        choices = members(field)
        if not choices:
            continue
        tag = _option((name, str(field.discriminator)))
        chosen[name] = type(getattr(default, name) if default else field.get_default())
        for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
            option, equals, value = word.partition("=")
            if option.replace("_", "-") == tag and (equals or following):
                value = value if equals else following
                if value not in choices:
                    raise UserError(f"{tag} must be {quoted(choices)}. Received: {value!r}.")
                chosen[name] = choices[value]
    return chosen


def _union_field(name: str, member: type[BaseModel], given: BaseModel | None) -> StructFieldSpec:
    default = getattr(given, name, None)
    # Not validated, because a default may be one that the user has to replace.
    return StructFieldSpec(name, member, default if type(default) is member else member.model_construct())


def _tag_field(name: str, choices: Mapping[str, type[BaseModel]], given: BaseModel | None) -> StructFieldSpec:
    spec = PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar="|".join(choices),
        instance_from_str=lambda words: words[0],
        is_instance=lambda _: True,
        str_from_instance=lambda value: [value],
    )
    about = "; ".join(f"{choice}: {(member.__doc__ or '').rstrip('.')}" for choice, member in choices.items())
    described = f"{about}. Any other than the recipe's has its own fields and defaults: add --help to list them."
    kind: Any = Annotated[object, spec]
    return StructFieldSpec(name, kind, getattr(given, name), described)


def _field(name: str, field: FieldInfo, given: BaseModel | None) -> StructFieldSpec:
    default = getattr(given, name) if given else MISSING if field.is_required() else field.get_default()
    name = field.alias or name
    kind: Any = field.annotation
    if kind is not bool and not is_group(kind):
        kind = Annotated[(object, _words(name, field), *field.metadata)]
    # tyro keeps the line breaks of a docstring, but wraps lines itself.
    return StructFieldSpec(name, kind, default, " ".join((field.description or "").split()))


def _words(name: str, field: FieldInfo) -> PrimitiveConstructorSpec[Any]:
    """Passes the words for a field on unchanged, except for "none", because pydantic reads no word as None."""
    takes_none = type(None) in options(field)
    many = several(field) or any(map(several, options(field)))
    by_name = _positional(field) and get_origin(field.annotation) is not Literal
    kinds = options(field) or (field.annotation,)

    def read(words: list[str]) -> Any:
        if takes_none and words in (["none"], ["None"]):
            return None
        if Path in kinds and Url not in kinds and is_url(words[0]):
            # As a path, it would be a folder named s3: in this one.
            raise UserError(f"{name if by_name else _option((name,))} takes no URL. Received: {words[0]}.")
        return words if many else words[0]

    def write(value: Any) -> list[str]:
        if value is None:
            return ["none"]
        return [str(item) for item in value] if many else [str(value)]

    return PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=name.upper() if by_name else placeholder(field),
        instance_from_str=read,
        is_instance=lambda _: True,
        str_from_instance=write,
    )


def _checked(kind: type[Arguments], values: dict[str, Any]) -> Arguments:
    try:
        checked = kind.model_validate(values)
    except ValidationError as error:
        raise UserError(explain(error, kind, lambda path: _called(kind, path))) from None
    _refuse_other_encodings(checked)
    return checked


def _refuse_other_encodings(checked: BaseModel) -> None:
    """Refuses paths, and words of a configuration, that are not in UTF-8: neither JSON nor TensorFlow takes them."""
    for name, field in type(checked).model_fields.items():
        value = getattr(checked, name)
        if not isinstance(value, Path | Url) and not (isinstance(value, str) and name in Config.model_fields):
            continue
        shown = printable(str(value))
        if shown != str(value):
            called = _called(type(checked), (field.alias or name,))
            raise UserError(f"{called} must be in UTF-8. Received: {shown}. Rename it, and repeat the command.")


def _called(kind: type[BaseModel], path: tuple[str, ...]) -> str:
    first = kind.model_fields.get(path[0]) if path else None
    return path[0].upper() if first and _positional(first) else _option(path)


def _positional(field: FieldInfo) -> bool:
    return tyro.conf.Positional in field.metadata


def _options(
    kind: type[BaseModel],
    chosen: Mapping[str, type[BaseModel]],
    hidden: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        group: Any = chosen.get(name, field.annotation)
        if is_group(group):
            yield from _options(group, {}, (), (*path, name))
        elif name not in hidden and not _positional(field):
            yield _option((*path, field.alias or name))


def _option(path: tuple[str, ...]) -> str:
    return "--" + ".".join(path).replace("_", "-")


def _unknown(
    word: str, kind: type[BaseModel], chosen: Mapping[str, type[BaseModel]], hidden: tuple[str, ...], prog: str
) -> UserError:
    if not word.startswith("-"):
        return UserError(f"unexpected argument '{word}'. `{prog} --help` lists what is expected.")
    word = word.partition("=")[0]
    group, _, field = word.strip("-").replace("-", "_").partition(".")
    if group in chosen:
        member, union = chosen[group], kind.model_fields[group]
        owners = [tag for tag, other in members(union).items() if field.removeprefix("no_") in other.model_fields]
        if owners:
            tag = str(union.discriminator)
            fields = ", ".join(_options(member, {}, (tag,), (group,))) or "no options"
            *others, last = owners
            belongs = f"{', '.join(others)} and {last}" if others else last
            return UserError(
                f"there is no option '{word}' with {_option((group, tag))} {member.model_fields[tag].default}, which "
                f"takes {fields}. It belongs to {belongs}."
            )
    known = sorted(_options(kind, chosen, hidden))
    # Typing --momentum for --optimizer.momentum is the most common slip, which string similarity often misses.
    name = ABBREVIATIONS.get(word.strip("-").replace("_", "-"), word.strip("-"))
    same = (option for option in known if option.rpartition(".")[2].strip("-") == name)
    # --search.optimizer.ema is meant for --search.ema.
    shorter = f"--{group}.{word.rpartition('.')[2]}"
    close = shorter if shorter in known else next(same, nearest(word, known))
    hint = f"Did you mean '{close}'? " if close else ""
    return UserError(f"there is no option '{word}'. {hint}`{prog} --help` lists them all.")

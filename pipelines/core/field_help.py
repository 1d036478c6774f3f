"""Describes the values that a field takes, for command-line help and for errors that a user can act on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipelines.core.errors import nearest
from pipelines.core.url import Url

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    Url: "a URL",
    bool: "true or false",
    NoneType: "none",
}
PLACEHOLDERS: dict[Any, str] = {
    int: "INT",
    float: "NUMBER",
    str: "TEXT",
    Path: "PATH",
    Url: "URL",
    bool: "BOOL",
    NoneType: "none",
}
LIMITS = {"ge": "of at least", "gt": "greater than", "le": "at most", "lt": "less than"}


def explain(error: ValidationError, model: type[BaseModel], name: Callable[[tuple[str, ...]], str] = ".".join) -> str:
    """Describes the wrong fields: what each takes, and what it received.

    Args:
        error: raised by the validation of `model`.
        model: the validated model.
        name: turns the path of a field, such as ("optimizer", "momentum"), into the name that the user knows.

    Returns:
        One line per wrong field.

    Example:
        explain(error, Config)  # "epochs must be a whole number of at least 1. Received: 0."
    """
    sentences = {}
    for detail in error.errors():
        path, field, owner = _find(model, detail["loc"])
        called = name(path)
        if detail["type"] == "missing":
            sentences[path] = f"{called} is missing."
        elif detail["type"] == "extra_forbidden":
            sentences[path] = _no_field(called, path[-1], owner)
        elif detail["type"] == "value_error":
            # A rule across the fields of a group names them itself, and no option is called like the group.
            is_rule = field is None or is_group(field.annotation) or members(field)
            place = ".".join(path) if is_rule else called
            sentences[path] = f"{place + ': ' if place else ''}{detail['ctx']['error']}."
        elif detail["type"] == "union_tag_invalid" and field is not None:
            tag = name((*path, str(field.discriminator)))
            received = detail["ctx"]["tag"]
            sentences[path] = f"{tag} must be {quoted(members(field))}. Received: {received!r}."
        elif field is not None:
            infinite = ", which is not finite" if detail["type"] == "finite_number" else ""
            sentences[path] = f"{called} must be {expectation(field)}. Received: {detail['input']!r}{infinite}."
        else:
            sentences[path] = f"{called}: {detail['msg']}."
    return "\n".join(sentences.values())


def _no_field(called: str, field: str, owner: type[BaseModel]) -> str:
    close = nearest(field, owner.model_fields)
    hint = f" Did you mean '{close}'?" if close else f" {owner.__name__} has: {', '.join(owner.model_fields)}."
    return f"there is no field {called}.{hint}"


def expectation(annotation: Any, limits: Sequence[Any] = ()) -> str:
    """Describes the values that a field takes ("a number of at least 0 and less than 1").

    Args:
        annotation: a pydantic field, or the type of a value.
        limits: metadata of the type in `Annotated`.
    """
    kind, limits = bare(annotation, limits)
    if options(kind):
        return either(list(dict.fromkeys(expectation(option, limits) for option in options(kind))))
    if get_origin(kind) is Literal:
        return quoted(get_args(kind))
    if several(kind):
        number = "one or more values" if any(getattr(limit, "min_length", 0) for limit in limits) else "values"
        item = get_args(kind)[0]
        each = f"a JSON object with {', '.join(item.model_fields)}" if is_group(item) else expectation(item)
        return f"{number}, each {each}"
    if is_group(kind):
        return "a group of fields"
    bounds = [
        f"{word} {getattr(limit, key):g}" for limit in limits for key, word in LIMITS.items() if hasattr(limit, key)
    ]
    return " ".join([WORDS[kind], " and ".join(bounds)]).strip()


def placeholder(annotation: Any) -> str:
    """Returns the placeholder of a field's value in the help ("NUMBER|none")."""
    kind, _ = bare(annotation)
    if options(kind):
        return "|".join(placeholder(option) for option in options(kind))
    if get_origin(kind) is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    if several(kind):
        return f"[{placeholder(get_args(kind)[0])} ...]"
    return "JSON" if is_group(kind) else PLACEHOLDERS[kind]


def options(annotation: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or nothing."""
    kind, _ = bare(annotation)
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else ()


def several(annotation: Any) -> bool:
    """Returns whether a field takes any number of values."""
    kind, _ = bare(annotation)
    return get_origin(kind) in {tuple, list}


def is_group(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Returns whether a field is itself a configuration."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def members(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Returns the members of a tagged union by tag; empty for any other field.

    Example:
        members(Config.model_fields["optimizer"])["sgd"]  # SGD
    """
    tag = field.discriminator
    return {member.model_fields[tag].default: member for member in options(field)} if isinstance(tag, str) else {}


def quoted(choices: Sequence[str] | dict[str, Any]) -> str:
    """Lists choices ("'a', 'b' or 'c'")."""
    return either([f"'{choice}'" for choice in choices])


def either(choices: Sequence[str]) -> str:
    """Lists choices without quotes ("a, b or c")."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if choices[1:] else choices)


def bare(annotation: Any, limits: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
    """Separates a type from its limits, such as `Ge(ge=1)`.

    Args:
        annotation: a pydantic field, or the type of a value.
        limits: further limits.
    """
    # Pydantic keeps limits on the field itself; inside unions, it keeps them as fields within Annotated.
    limits = list(limits)
    if isinstance(annotation, FieldInfo):
        return bare(annotation.annotation, [*limits, *annotation.metadata])
    if get_origin(annotation) is Annotated:
        annotation, *extra = get_args(annotation)
        for item in extra:
            limits += item.metadata if isinstance(item, FieldInfo) else [item]
        return bare(annotation, limits)
    return annotation, limits


def _find(
    model: type[BaseModel], location: Sequence[str | int]
) -> tuple[tuple[str, ...], FieldInfo | None, type[BaseModel]]:
    """Returns path, field and owner of the last field on the way to an error's location.

    A location also contains the members of unions ("transform_bias", "float") and indices into tuples.
    """
    path: tuple[str, ...] = ()
    field: FieldInfo | None = None
    owner = group = model
    for part in location:
        if field is not None and part in members(field):
            group = members(field)[str(part)]
            continue
        if not is_group(group):
            break
        path, owner = (*path, str(part)), group
        field = next((one for name, one in owner.model_fields.items() if part in (name, one.alias)), None)
        group = field.annotation if field else None  # type: ignore[assignment]
    return path, field, owner

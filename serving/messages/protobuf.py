"""Protobuf classes from tables of fields.

The packages that publish the messages of TF Serving and of the Open Inference Protocol depend on TensorFlow, or on a
client with an older protobuf. A table with the fields that are needed here has the same format on the wire, and the
tests compare it with the published messages. Each set of messages has its own descriptor pool, so that a process
may also import the published ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Number, name and type of each field. A type is one of protobuf's, an enum, or a message; "*" stands before it if the
# field is repeated, and "map " before the values of a map from strings.
Fields = tuple[tuple[int, str, str], ...]
_Field = descriptor_pb2.FieldDescriptorProto
# Maximum number of fields that `bulk_bytes` reads, and minimum length of a field that it counts.
FIELDS, LONG = 512, 2**10
# Wire types: a number, a length with data, and data of fixed length.
_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}


def message_classes(
    package: str, messages: Mapping[str, Fields], enums: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Returns the classes of messages.

    Args:
        package: name of their package.
        messages: fields by message; a field refers only to messages of this table.
        enums: numbers by name, by enum; one of the names is 0.

    Example:
        Point = message_classes("example", {"Point": ((1, "x", "float"), (2, "y", "float"))}, {})["Point"]
        Point(x=1.0).SerializeToString()
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, numbers in enums.items():
        # Values are in the scope of the enum's parent, so each enum gets its own parent.
        enum = file.message_type.add(name=f"{name}s").enum_type.add(name=name)
        # In proto3, the first value is 0.
        for value, number in sorted(numbers.items(), key=lambda one: one[1]):
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            if not kind.startswith("map "):
                _add(message, number, field, kind, enums)
                continue
            # On the wire, a map is a repeated pair.
            entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            _add(entry, 1, "key", "string", enums)
            _add(entry, 2, "value", kind.removeprefix("map "), enums)
            _add(message, number, field, f"*{name}.{entry.name}", enums)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add(message: Any, number: int, name: str, kind: str, enums: Mapping[str, object]) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    scalar = getattr(_Field, f"TYPE_{kind.upper()}", None)
    field.type = scalar or (_Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE)
    if scalar is None:
        # Relative to the package.
        field.type_name = f"{kind}s.{kind}" if kind in enums else kind


def first_field(body: bytes, number: int) -> bytes:
    """Returns the first field of a message with a number, without parsing the message.

    Args:
        body: the message.
        number: number of a field of type `string`, `bytes` or a message.

    Returns:
        Its content; empty if it is not among the first `FIELDS` fields.

    Example:
        first_field(body, 1).decode()
    """
    for found, start, end in _long_fields(body, 0, len(body)):
        if found == number:
            return bytes(body[start:end])
    return b""


def bulk_bytes(body: bytes, paths: tuple[tuple[int, ...], ...]) -> int:
    """Counts the bytes of a message that are in long fields of type `bytes`, which are parsed by copying them.

    Everything else takes time by the field, or by the number, so that a message of a megabyte may take milliseconds.

    Args:
        body: the message; if it is malformed, the count ends there.
        paths: numbers of these fields, from the outermost message inwards.

    Returns:
        The count, without any fields after the first `FIELDS` of a message.

    Example:
        bulk_bytes(body, ((7,),))
    """
    found = 0
    pending = [(0, len(body), paths)]
    for _ in range(FIELDS):
        if not pending:
            break
        start, end, below = pending.pop()
        for number, inner_start, inner_end in _long_fields(body, start, end):
            inner = tuple(path[1:] for path in below if path[0] == number)
            if () in inner:
                found += inner_end - inner_start if inner_end - inner_start >= LONG else 0
            elif inner:
                pending.append((inner_start, inner_end, inner))
    return found


def _long_fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields number, start and end of the fields with a length, until the message is malformed or has many fields."""
    for _ in range(FIELDS):
        tag, at = _varint(body, at)
        if not 0 <= at <= end:
            return
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, at = _varint(body, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            length, at = _varint(body, at)
            if kind != _LENGTH or at < 0 or length > end - at:
                return
            yield number, at, at + length
            at += length
        if not 0 <= at < end:
            return


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a position and the position after it, which is -1 if there is none."""
    value, shift = 0, 0
    while at < len(body) and shift < 64:
        byte = body[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
    return 0, -1

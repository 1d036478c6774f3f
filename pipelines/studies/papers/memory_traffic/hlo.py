"""Bytes that a program compiled by XLA reads and writes, counted from its HLO text.

The count follows "bytes accessed" of XLA's cost analysis, which TensorFlow does not expose: each instruction reads its
operands and writes its result; values inside a fusion are free. It does not separate caches from memory.
"""

import math
import re

_SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s64": 8, "u64": 8, "f64": 8}
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_NAME = re.compile(r"%?([A-Za-z_][\w.-]*)")
# These only name existing arrays.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
_LOOP = re.compile(r" (while|conditional)\(")


def moved(program: str) -> int:
    """Counts the bytes of one execution of a program.

    Args:
        program: optimized HLO, as text.

    Returns:
        Bytes read and written by all instructions of the entry computation.

    Raises:
        ValueError: no entry computation, or a loop or conditional, whose iterations the text need not contain.

    Example:
        moved(jax.jit(step).lower(x).compile().as_text())
    """
    _, entry, rest = program.partition("\nENTRY ")
    if not entry:
        raise ValueError("The text is not a compiled program: it has no entry computation.")
    # Also in computations that are called.
    if loop := _LOOP.search(program):
        raise ValueError(f"A program with a loop cannot be counted from its text. Received: '{loop[1]}'")
    sizes: dict[str, int] = {}
    total = 0
    for line in rest.partition("\n}")[0].splitlines():
        found = _INSTRUCTION.match(line)
        if not found:
            continue
        name, kind, operation, operands = found.groups()
        sizes[name] = _bytes(kind)
        if operation not in _FREE:
            total += sizes[name] + sum(sizes.get(operand, 0) for operand in _operands(operands))
    return total


def _operands(text: str) -> list[str]:
    """Returns the operand names of an instruction, from the text after its opening bracket."""
    depth = 1
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return _NAME.findall(re.sub(r"/\*.*?\*/", "", text[:place]))
    return []


def _bytes(kind: str) -> int:
    """Returns the size of an array, or of all arrays of a tuple."""
    return sum(
        _SIZES.get(dtype, 4) * math.prod(int(side) for side in sides.split(",") if side)
        for dtype, sides in _ARRAY.findall(kind)
    )

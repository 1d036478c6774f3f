"""Bytes that a program compiled by XLA reads and writes, counted from its text, which every backend can print.

Counted as XLA itself counts them ("bytes accessed" of its cost analysis, which TensorFlow does not give): each
instruction reads its operands and writes its result. What is fused into one instruction moves nothing between. Whether
the bytes come from a cache or from memory the program does not say.
"""

import math
import re

_SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s64": 8, "u64": 8, "f64": 8}
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_NAME = re.compile(r"%?([A-Za-z_][\w.-]*)")
# They give names to what is there.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
_LOOP = re.compile(r" (while|conditional)\(")


def moved(program: str) -> int:
    """Counts the bytes of one execution.

    Args:
        program: optimised HLO, as text.

    Returns:
        Bytes read and written by all instructions of the entry computation.

    Raises:
        ValueError: there is no entry computation, or a loop or a choice, whose rounds the text need not tell.

    Example:
        moved(jax.jit(step).lower(x).compile().as_text())
    """
    _, entry, rest = program.partition("\nENTRY ")
    if not entry:
        raise ValueError("The text is no compiled program: it has no entry computation.")
    # It may lie in a computation that is called.
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
    """The names between the brackets of an instruction, of which the first was cut off."""
    depth = 1
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return _NAME.findall(re.sub(r"/\*.*?\*/", "", text[:place]))
    return []


def _bytes(kind: str) -> int:
    """Of an array, or of all arrays of a tuple."""
    return sum(
        _SIZES.get(dtype, 4) * math.prod(int(side) for side in sides.split(",") if side)
        for dtype, sides in _ARRAY.findall(kind)
    )

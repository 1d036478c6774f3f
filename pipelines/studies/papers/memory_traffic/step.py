"""A training step as one compiled program, on either backend: the bytes that it moves, and its time.

The step consists of loss, gradients and the optimizer's update, without metrics. Bytes are counted from the program's
HLO text like "bytes accessed" in XLA's cost analysis, which TensorFlow does not expose: each instruction reads its
operands and writes its result; values inside a fusion are free. The count does not distinguish caches from memory.
"""

import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np

COPIED = 2**28
"""Bytes copied to measure memory bandwidth: more than the caches hold."""
_SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s64": 8, "u64": 8, "f64": 8}
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_NAME = re.compile(r"%?([A-Za-z_][\w.-]*)")
# These only refer to existing arrays.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
_LOOP = re.compile(r" (while|conditional)\(")


class Step(NamedTuple):
    """A compiled training step."""

    program: str
    """Optimized HLO, as text."""
    run: Callable[[int], None]
    """Runs a given number of steps and returns when they are done."""


def compiled(net: keras.Model, optimizer: keras.optimizers.Optimizer, x: np.ndarray, y: np.ndarray) -> Step:
    """Compiles a training step with XLA.

    Args:
        net: returns logits. TensorFlow trains its weights, JAX copies of them.
        optimizer: an optimizer that is not built yet.
        x: a batch of inputs.
        y: its one-hot labels.

    Returns:
        The step, which always trains on this batch.
    """
    optimizer.build(net.trainable_variables)
    return (_on_jax if keras.backend.backend() == "jax" else _on_tensorflow)(net, optimizer, x, y)


def _loss(logits: Any, y: Any) -> Any:
    return keras.ops.mean(keras.losses.categorical_crossentropy(y, logits, from_logits=True))


def _on_jax(net: keras.Model, optimizer: keras.optimizers.Optimizer, x: np.ndarray, y: np.ndarray) -> Step:
    import jax

    def step(weights: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            logits, _ = net.stateless_call(weights, net.non_trainable_variables, x, training=True)
            return _loss(logits, y)

        return optimizer.stateless_apply(state, jax.grad(loss)(weights), weights)

    weights = [jax.numpy.array(variable.value) for variable in net.trainable_variables]
    state = [jax.numpy.array(variable.value) for variable in optimizer.variables]
    batch = jax.device_put((x, y))
    program = jax.jit(step, donate_argnums=(0, 1)).lower(weights, state, *batch).compile()
    held = [(weights, state)]

    def run(steps: int) -> None:
        for _ in range(steps):
            held.append(program(*held.pop(), *batch))
        jax.block_until_ready(held)

    return Step(program.as_text(), run)


def _on_tensorflow(net: keras.Model, optimizer: keras.optimizers.Optimizer, x: np.ndarray, y: np.ndarray) -> Step:
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = _loss(net(x, training=True), y)
        optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)

    batch = tf.constant(x), tf.constant(y)

    def run(steps: int) -> None:
        for _ in range(steps):
            step(*batch)
        # Reading the weights waits for the update.
        net.trainable_variables[0].numpy()

    return Step(step.experimental_get_compiler_ir(*batch)(stage="optimized_hlo"), run)


def moved(program: str) -> int:
    """Counts the bytes of one execution of a program.

    Args:
        program: optimized HLO, as text.

    Returns:
        Bytes read and written by all instructions of the entry computation.

    Raises:
        ValueError: the text has no entry computation, or has a loop or conditional, whose iterations it may not state.

    Example:
        moved(jax.jit(step).lower(x).compile().as_text())
    """
    _, entry, rest = program.partition("\nENTRY ")
    if not entry:
        raise ValueError("The text is not a compiled program: it has no entry computation.")
    # Searches the whole text, because a called computation may contain the loop.
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
    """Returns the operand names of an instruction from the text after its opening bracket."""
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


def alternating(step: Step, cores: int, *, rounds: int, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Times steps and memory copies alternately, so that other work on the machine affects both alike.

    Args:
        step: step to time.
        cores: number of threads that copy at the same time, one part each.
        rounds: number of rounds, each of steps and a copy.
        seconds: duration of the steps in a round; at least one step runs.

    Returns:
        Seconds per step, and bytes per second of copying (read and written), each `[rounds]`.

    Example:
        times, bandwidths = alternating(step, cores=2, rounds=9, seconds=0.3)
    """
    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    parts = list(zip(np.array_split(source, cores), np.array_split(target, cores), strict=True))
    times, bandwidths = [], []
    step.run(1)
    # NumPy releases the interpreter's lock while it copies.
    with ThreadPoolExecutor(cores) as pool:

        def copy() -> None:
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))

        copy()
        count = max(1, round(seconds / _timed(lambda: step.run(1))))
        for _ in range(rounds):
            times.append(_timed(lambda: step.run(count)) / count)
            bandwidths.append(2 * COPIED / _timed(copy))
    return np.array(times), np.array(bandwidths)


def _timed(act: Callable[[], None]) -> float:
    since = time.perf_counter()
    act()
    return time.perf_counter() - since

"""A loop over stacked arrays; backends that compile trace its body once, whatever its length."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

Arrays = tuple[Any, ...]
Body = Callable[[Any, Arrays], tuple[Any, Arrays]]


def scan(body: Body, carry: Any, slices: Arrays, *, kept: int = 0, reverse: bool = False) -> Any:
    """Runs `body` over the first axis of arrays, carrying a value from step to step and keeping its outputs.

    Works like `keras.ops.scan`, whose loop has no bound on TensorFlow, so that XLA cannot compile its gradient and ONNX
    has no equivalent. On TensorFlow this is a bounded `tf.while_loop`, on JAX `keras.ops.scan` itself, and on backends
    without compiled loops (PyTorch, OpenVINO, NumPy) a Python loop.

    Args:
        body: maps the carried tensor and a tuple of rows to the next carried tensor and a tuple of float outputs.
        carry: initial carried tensor; its shape and dtype must not change.
        slices: arrays `[length, ...]` of known length, or kept outputs of another `scan`; each step gets a row of each.
        kept: number of outputs of `body`, all of the dtype of `carry`.
        reverse: whether to run from the last row to the first; outputs are kept in row order either way.

    Returns:
        The final carried tensor, and a tuple of the kept outputs: each is an array `[length, ...]`, or a tuple of rows
        if the loop is Python's. Either form may be a slice of another `scan`; `stacked` makes an array of it.

    Example:
        total, (sums,) = scan(lambda a, row: (a + row[0], (a + row[0],)), zero, (rows,), kept=1)
        sums = stacked(sums)
    """
    if not is_traced():
        return _python_loop(body, carry, slices, reverse=reverse)
    if keras.backend.backend() == "tensorflow":
        return _while_loop(body, carry, slices, kept=kept, reverse=reverse)
    return ops.scan(body, carry, slices, reverse=reverse)


def is_traced() -> bool:
    """Tests whether the backend traces the body of a loop once; the others run a Python loop."""
    return keras.backend.backend() in ("jax", "tensorflow")


def stacked(rows: Any) -> Any:
    """Returns one kept output of `scan` as an array `[length, ...]`."""
    if not isinstance(rows, tuple):
        return rows
    if keras.backend.backend() == "torch":
        import torch

        return torch.stack(rows)  # `keras.ops.stack` takes several times as long for many small arrays.
    return ops.stack(rows)


def _while_loop(body: Body, carry: Any, slices: Arrays, *, kept: int, reverse: bool) -> Any:
    import tensorflow as tf

    length = slices[0].shape[0]

    def step(count: Any, carry: Any, stacks: Arrays) -> Any:
        row = length - 1 - count if reverse else count
        carry, values = body(carry, tuple(tf.gather(array, row) for array in slices))
        return count + 1, carry, tuple(stack.write(row, value) for stack, value in zip(stacks, values, strict=True))

    stacks = tuple(tf.TensorArray(carry.dtype, length) for _ in range(kept))
    _, carry, stacks = tf.while_loop(
        lambda count, *_: count < length, step, (tf.constant(0), carry, stacks), maximum_iterations=length
    )
    return carry, tuple(stack.stack() for stack in stacks)


def _python_loop(body: Body, carry: Any, slices: Arrays, *, reverse: bool) -> Any:
    order = -1 if reverse else 1
    kept = []
    for row in list(zip(*map(_rows, slices), strict=True))[::order]:
        carry, values = body(carry, row)
        kept.append(values)
    return carry, tuple(zip(*kept[::order], strict=True))


def _rows(array: Any) -> Any:
    return array if isinstance(array, tuple) else ops.unstack(ops.convert_to_tensor(array))

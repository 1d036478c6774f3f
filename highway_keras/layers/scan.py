"""A loop over stacked arrays that is traced and compiled once, however long it is."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

Arrays = tuple[Any, ...]
Body = Callable[[Any, Arrays], tuple[Any, Arrays]]


def scan(body: Body, carry: Any, slices: Arrays, *, kept: int = 0, reverse: bool = False) -> Any:
    """Runs `body` over the first axis of arrays, passes a value on from step to step, and stacks what each step keeps.

    `keras.ops.scan` says the same, but on TensorFlow XLA cannot compile its gradient (its loop has no bound), and ONNX
    knows no such loop. There it is a `tf.while_loop` with a bound.

    Args:
        body: from the carried tensor and a tuple of slices to the carried tensor and a tuple of float tensors to keep.
        carry: the first carried tensor; neither its shape nor its dtype may change.
        slices: arrays `[length, ...]` of a known length; the body gets their rows.
        kept: how many tensors the body keeps, all of the dtype of `carry`.
        reverse: whether to go from the last row to the first; what is kept lies in the order of the rows all the same.

    Returns:
        The last carried tensor, and a tuple of `kept` arrays `[length, ...]`.

    Example:
        total, (sums,) = scan(lambda a, row: (a + row[0], (a + row[0],)), zero, (rows,), kept=1)
    """
    if keras.backend.backend() == "tensorflow":
        return _while_loop(body, carry, slices, kept=kept, reverse=reverse)
    return ops.scan(body, carry, slices, reverse=reverse)


def _while_loop(body: Body, carry: Any, slices: Arrays, *, kept: int, reverse: bool) -> Any:
    import tensorflow as tf

    length = slices[0].shape[0]

    def step(done: Any, carry: Any, stacks: Arrays) -> Any:
        row = length - 1 - done if reverse else done
        carry, values = body(carry, tuple(tf.gather(array, row) for array in slices))
        return done + 1, carry, tuple(stack.write(row, value) for stack, value in zip(stacks, values, strict=True))

    stacks = tuple(tf.TensorArray(carry.dtype, length) for _ in range(kept))
    _, carry, stacks = tf.while_loop(
        lambda done, *_: done < length, step, (tf.constant(0), carry, stacks), maximum_iterations=length
    )
    return carry, tuple(stack.stack() for stack in stacks)

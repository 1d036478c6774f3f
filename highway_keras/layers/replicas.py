"""Statistics of a batch that TensorFlow's `tf.distribute` divides among replicas.

Other backends need nothing of the kind: JAX compiles one program for all devices, which sees the whole batch.
"""

from typing import Any

import keras
from keras import ops


def count() -> int:
    """Returns the number of replicas that compute a step together; 1 outside a strategy's replicas."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync if context else 1


def moments(inputs: Any, axes: list[int], mask: Any = None) -> tuple[Any, Any]:
    """Computes mean and variance over the batches of all replicas; gradients pass through them, to all replicas.

    Args:
        inputs: this replica's part, float32 or wider.
        axes: axes to reduce.
        mask: true where an input counts, broadcastable to the inputs; None counts all.

    Returns:
        Mean and population variance, which are equal in all replicas.

    Example:
        mean, variance = moments(x, [0, 1, 2])
    """

    def total(array: Any) -> Any:
        counted = array if mask is None else ops.where(mask, array, ops.zeros_like(array))
        return ops.sum(counted, axes, keepdims=True)

    added, size = _summed(total(inputs), total(ops.ones_like(inputs)))
    size = ops.maximum(size, 1)
    mean = added / size
    # The derivative of the variance by the mean is 0.
    (squares,) = _summed(total(ops.square(inputs - ops.stop_gradient(mean))))
    return ops.squeeze(mean, axes), ops.squeeze(squares / size, axes)


def _summed(*tensors: Any) -> Any:
    """Adds tensors over the replicas, in one exchange."""
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, list(tensors))

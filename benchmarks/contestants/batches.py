"""Batches for `Model.fit`, on either backend."""

from typing import Any

import keras
import numpy as np


def feeding(images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Builds the arguments of `fit` for one pass over batches, in order.

    On TensorFlow they hold a dataset without tf.data's autotuning, which stalls `fit` for as long as a turn (see
    `pipelines.data`). Plain Keras and ours both use it, so that steps are compared, not stalls.

    Args:
        images: [batches, batch, ...].
        labels: [batches, batch, ...].
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        from pipelines.data.parallel import READY, fixed

        return {"x": tf.data.Dataset.from_tensor_slices((images, labels)).prefetch(READY).with_options(fixed())}
    batches, batch = images.shape[:2]
    x = images.reshape(batches * batch, *images.shape[2:])
    y = labels.reshape(batches * batch, *labels.shape[2:])
    return {"x": x, "y": y, "batch_size": batch, "shuffle": False}

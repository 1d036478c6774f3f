"""FastAPI and TensorFlow, with the SavedModel loaded into the process."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.servers import web


def make(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Loads the SavedModel on one thread, because this net has no operations that could run in parallel."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def predict(images: np.ndarray) -> np.ndarray:
        # `loaded` owns the weights, so this function keeps it alive.
        assert loaded is not None
        return signature(image=tf.constant(images))["probabilities"].numpy()

    return predict


if __name__ == "__main__":
    web.run(make)

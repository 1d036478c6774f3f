"""FastAPI and TensorFlow, with the SavedModel in the process."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.servers import web


def make(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Loads the SavedModel; operations one after another, as there is nothing in this net to do side by side."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def predict(images: np.ndarray) -> np.ndarray:
        # `loaded` has the weights: it must live as long.
        assert loaded is not None
        return signature(image=tf.constant(images))["probabilities"].numpy()

    return predict


if __name__ == "__main__":
    web.run(make)

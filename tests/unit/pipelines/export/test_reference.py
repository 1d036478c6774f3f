import keras
import numpy as np
import tensorflow as tf

from pipelines.core.config import Preprocess
from pipelines.data.preprocess import Fitted
from pipelines.export import reference


def test_the_reference_is_computed_without_tensor_float_32():
    """On recent GPUs, it would differ from ONNX Runtime by more than the tolerance."""
    seen = []

    class Dense(keras.layers.Dense):
        def call(self, inputs):
            seen.append(tf.config.experimental.tensor_float_32_execution_enabled())
            return super().call(inputs)

    inputs = keras.Input((4,))
    model = keras.Model(inputs, Dense(2)(inputs))
    seen.clear()
    tf.config.experimental.enable_tensor_float_32_execution(True)
    rows = np.ones((3, 4), np.float32)
    found, _ = reference.compute(model, Fitted(Preprocess(), None), rows, convert=None, kind=None, gates=False)
    assert found.probabilities.shape == (3, 2)
    assert seen
    assert not any(seen)
    assert tf.config.experimental.tensor_float_32_execution_enabled()

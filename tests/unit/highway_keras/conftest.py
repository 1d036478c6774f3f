"""Initial weights without compilation.

pytest reads this file before it starts its workers, which therefore do not wait for an import of Keras here.
"""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _numpy_initial_values(request, monkeypatch):
    """Draws initial weights with NumPy, because JAX compiles a random initializer for every shape.

    As in Keras, an instance draws the same values at each call, and the global seed repeats them. Tests of the values
    themselves use the fixture `keras_initial_values`.
    """
    if "keras_initial_values" in request.fixturenames:
        return
    import keras

    def draw(self, shape, dtype=None, **_):
        rng = np.random.default_rng(self.seed) if isinstance(self.seed, int) else np.random
        values = rng.normal(0, np.sqrt(2 / max(1, np.prod(shape[:-1]))), shape)
        return keras.ops.convert_to_tensor(values.astype("float32"), dtype=dtype or "float32")

    for kind in (keras.initializers.VarianceScaling, keras.initializers.RandomNormal):
        monkeypatch.setattr(kind, "__call__", draw)


@pytest.fixture
def keras_initial_values():
    """Keeps Keras's own initializers."""

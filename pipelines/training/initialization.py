"""Fast initialization of weights on JAX.

Imports Keras only, because the benchmarks run it in an environment without pydantic and TensorFlow.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import keras


@contextmanager
def fast_initializers() -> Iterator[None]:
    """Disables most JAX compiler optimizations in the block, so that initializers compile quickly.

    JAX compiles a program for each shape of weights, several times as fast without most optimizations. Numbers differ
    by rounding at most. Other backends do not compile initializers.

    Example:
        with fast_initializers():
            net = highway_keras.from_preset("mnist_dense_50")
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)

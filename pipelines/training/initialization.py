"""The start of training on JAX: drawing initial weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras


@contextmanager
def drawing() -> Iterator[None]:
    """Programs that JAX compiles in the block run once, and are not worth optimising.

    JAX compiles a program for each shape of weights that is drawn, which takes 0.3 to 0.7 s each; without most
    optimisations 0.1 s. Numbers differ by a rounding at most. Other backends do not compile for that.

    Example:
        with drawing():
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

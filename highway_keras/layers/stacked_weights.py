"""What Keras knows to do with the kernel of one layer, done with the stacked kernels of many."""

from collections.abc import Callable
from typing import Any

from keras import initializers, ops, random

from highway_keras.layers.seeds import reseeded

# Each number is drawn on its own: the shape does not matter.
INDEPENDENT = (
    initializers.Constant,
    initializers.Ones,
    initializers.RandomNormal,
    initializers.RandomUniform,
    initializers.TruncatedNormal,
    initializers.Zeros,
)


def initialize(initializer: Any, depth: int) -> Any:
    """An initialiser of stacked weights `[depth, ...]` whose layers are distributed as by `initializer`.

    Keras would take `depth` for a side of a convolution, and scale by it.

    Args:
        initializer: a Keras initialiser, or a function of shape and dtype.
        depth: number of layers.

    Returns:
        An initialiser, or a function of shape and dtype. It draws all layers at once where the initialiser is known to
        allow that, and layer by layer, each with a seed of its own, where it is not.

    Example:
        initialize(keras.initializers.HeNormal(), 30)((30, 50, 50))  # standard deviation 0.2, as of one [50, 50]
    """
    if isinstance(initializer, INDEPENDENT):
        return initializer
    if isinstance(initializer, initializers.VarianceScaling) and initializer.get_config().get("input_axes") is None:
        # Keras divides by a "fan" that has the depth in it.
        return initializers.VarianceScaling(
            initializer.scale * depth, initializer.mode, initializer.distribution, initializer.seed
        )
    return lambda shape, dtype=None: ops.stack(
        [_numbered(initializer, layer)(shape[1:], dtype=dtype) for layer in range(depth)]
    )


def penalty(regularizer: Any) -> Callable[[Any], Any] | None:
    """A penalty on stacked weights `[depth, ...]`: the sum of the penalties on the layers."""
    return None if regularizer is None else lambda weights: ops.sum(_mapped(regularizer, weights))


def constraint(of_one: Any) -> Callable[[Any], Any] | None:
    """A constraint on stacked weights `[depth, ...]`: on each layer alone."""
    return None if of_one is None else lambda weights: _mapped(of_one, weights)


def _mapped(function: Callable[[Any], Any], weights: Any) -> Any:
    # Keras hands over its variable, which JAX does not map.
    return ops.vectorized_map(function, ops.convert_to_tensor(weights))


def _numbered(initializer: Any, layer: int) -> Any:
    """An initialiser of the same kind that draws numbers of its own for each layer."""
    of_keras = isinstance(initializer, initializers.Initializer)
    # A function, and a generator of seeds, draw anew at each call.
    if not of_keras or isinstance(getattr(initializer, "seed", None), random.SeedGenerator):
        return initializer
    seed = initializer.get_config().get("seed")
    if isinstance(seed, int):
        return reseeded(initializer, seed + layer)
    return type(initializer).from_config(initializer.get_config())

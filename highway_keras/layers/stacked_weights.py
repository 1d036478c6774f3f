"""Initializers, regularizers and constraints of weights stacked along depth, acting on each layer separately."""

from collections.abc import Callable
from typing import Any

from keras import constraints, initializers, ops, random, regularizers

from highway_keras.layers.seeds import with_seed

# These draw each number independently, whatever the shape.
INDEPENDENT = (
    initializers.Constant,
    initializers.Ones,
    initializers.RandomNormal,
    initializers.RandomUniform,
    initializers.TruncatedNormal,
    initializers.Zeros,
)


def stacked_initializer(initializer: Any, depth: int) -> Any:
    """Returns an initializer of stacked weights `[depth, ...]` with the per-layer distribution of `initializer`.

    Keras itself would count `depth` as an axis of a convolution kernel, or as the inputs of a bias, and scale by it.

    Args:
        initializer: a Keras initializer, or a function of shape and dtype.
        depth: number of layers.

    Returns:
        An initializer, or a function of shape and dtype. It draws all layers at once where that keeps the distribution,
        otherwise layer by layer with distinct seeds.

    Example:
        stacked_initializer(keras.initializers.HeNormal(), 30)((30, 50, 50))  # standard deviation 0.2, as for [50, 50]
    """
    if isinstance(initializer, INDEPENDENT):
        return initializer
    whole: Any = None
    if isinstance(initializer, initializers.VarianceScaling) and initializer.get_config().get("input_axes") is None:
        # Keras divides by a fan that includes the depth, if the weights of a layer have two axes or more.
        whole = initializers.VarianceScaling(
            initializer.scale * depth, initializer.mode, initializer.distribution, initializer.seed
        )

    def stacked(shape: Any, dtype: Any = None) -> Any:
        if whole is not None and len(shape) > 2:
            return whole(shape, dtype=dtype)
        return ops.stack([_layer_initializer(initializer, layer)(shape[1:], dtype=dtype) for layer in range(depth)])

    return stacked


class StackedRegularizer(regularizers.Regularizer):
    """The penalty on stacked weights `[depth, ...]`: the sum of the penalties on the layers.

    Args:
        regularizer: the penalty on one layer.
    """

    def __init__(self, regularizer: Callable[[Any], Any]) -> None:
        self.regularizer = regularizer

    def __call__(self, x: Any) -> Any:
        """Returns the penalty on all layers, a scalar."""
        return ops.sum(_map_layers(self.regularizer, x))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {"regularizer": regularizers.serialize(self.regularizer)}


class StackedConstraint(constraints.Constraint):
    """A constraint on stacked weights `[depth, ...]` that acts on each layer separately.

    Args:
        constraint: the constraint on one layer.
    """

    def __init__(self, constraint: Callable[[Any], Any]) -> None:
        self.constraint = constraint

    def __call__(self, w: Any) -> Any:
        """Returns the constrained weights of all layers."""
        return _map_layers(self.constraint, w)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {"constraint": constraints.serialize(self.constraint)}


def _map_layers(function: Callable[[Any], Any], weights: Any) -> Any:
    # Keras passes its variable, which JAX cannot map over.
    return ops.vectorized_map(function, ops.convert_to_tensor(weights))


def _layer_initializer(initializer: Any, layer: int) -> Any:
    """Returns an initializer of the same kind with a separate seed for each layer."""
    is_keras = isinstance(initializer, initializers.Initializer)
    # Functions and seed generators draw anew at each call.
    if not is_keras or isinstance(getattr(initializer, "seed", None), random.SeedGenerator):
        return initializer
    seed = initializer.get_config().get("seed")
    if isinstance(seed, int):
        return with_seed(initializer, seed + layer)
    return type(initializer).from_config(initializer.get_config())

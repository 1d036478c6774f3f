"""Initializers with distinct seeds, because a shared instance or seed gives all weights of a shape the same values."""

from typing import Any

from keras import initializers

# Larger than any depth, because the layers of a stack count up from the seed of the first.
STEP = 2**20


def with_seed(initializer: Any, seed: int | None) -> Any:
    """Returns an initializer of the same kind with another seed; None lets Keras draw one."""
    return type(initializer).from_config({**initializer.get_config(), "seed": seed})


def with_distinct_seed(initializer: Any, *others: Any) -> Any:
    """Returns the initializer, or a reseeded copy if it would draw the same numbers as one of the others.

    The new seed is a function of the given one, so that a seeded layer stays reproducible.

    Args:
        initializer: a Keras initializer, or a function of shape and dtype.
        *others: initializers of other weights, possibly the same instance.

    Returns:
        An initializer. Functions, initializers with a seed generator and those without a seed are returned unchanged.

    Example:
        shared = keras.initializers.HeNormal(seed=1)
        with_distinct_seed(shared, shared)  # HeNormal with another seed
    """
    taken = {seed for other in others if (seed := _seed(other)) is not None}
    if _seed(initializer) not in taken:
        return initializer
    seed = _seed(initializer) or 0
    while seed in taken:
        seed += STEP
    return with_seed(initializer, seed)


def with_next_seed(initializer: Any) -> Any:
    """Returns an initializer of the same kind with the next seed, or a random one if none was given."""
    if not isinstance(initializer, initializers.Initializer):
        return initializer
    seed = initializer.get_config().get("seed")
    if isinstance(seed, int):
        return with_seed(initializer, seed + 1)
    return type(initializer).from_config(initializer.get_config())


def _seed(initializer: Any) -> int | None:
    """Returns the seed of an initializer that draws the same numbers at each call, else None."""
    seeded = isinstance(initializer, initializers.Initializer) and "seed" in initializer.get_config()
    seed = getattr(initializer, "seed", None)
    return seed if seeded and isinstance(seed, int) else None

"""Initializers whose draws differ: one instance, or one seed, gives every weight of a shape the same values."""

from typing import Any

from keras import initializers

# Above any depth, because the layers of a stack may count on from the seed of the first.
STEP = 2**20


def reseeded(initializer: Any, seed: int | None) -> Any:
    """An initializer of the same kind with another seed.

    Args:
        initializer: a Keras initializer whose config has a "seed".
        seed: a whole number, or None for one drawn by Keras.

    Returns:
        A new initializer.
    """
    return type(initializer).from_config({**initializer.get_config(), "seed": seed})


def distinct(initializer: Any, *others: Any) -> Any:
    """The initializer, or one of its kind with another seed if it would draw the numbers of one of the others.

    The other seed is a function of the given one, so a seeded layer draws the same numbers again.

    Args:
        initializer: a Keras initializer, or a function of shape and dtype.
        *others: the initializers of other weights, which may be the same instance.

    Returns:
        An initializer. Functions, generators of seeds and initializers without a seed come back as they are.

    Example:
        shared = keras.initializers.HeNormal(seed=1)
        distinct(shared, shared)  # HeNormal with another seed
    """
    taken = {seed for other in others if (seed := _seed(other)) is not None}
    if _seed(initializer) not in taken:
        return initializer
    seed = _seed(initializer) or 0
    while seed in taken:
        seed += STEP
    return reseeded(initializer, seed)


def another(initializer: Any) -> Any:
    """An initializer of the same kind that draws other numbers: the next seed, or a new one if none was given."""
    if not isinstance(initializer, initializers.Initializer):
        return initializer
    seed = initializer.get_config().get("seed")
    if isinstance(seed, int):
        return reseeded(initializer, seed + 1)
    return type(initializer).from_config(initializer.get_config())


def _seed(initializer: Any) -> int | None:
    """The number from which an initializer draws, if it draws the same numbers at each call."""
    seeded = isinstance(initializer, initializers.Initializer) and "seed" in initializer.get_config()
    seed = getattr(initializer, "seed", None)
    return seed if seeded and isinstance(seed, int) else None

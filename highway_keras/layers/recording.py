"""Reading the gates of a whole model: while a recorder is active, every highway layer that is called writes T to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_active: ContextVar[dict[str, Any] | None] = ContextVar("highway_keras_recording", default=None)


@contextmanager
def recording() -> Iterator[dict[str, Any]]:
    """Collects the transform gates of the highway layers that are called inside the block, in this thread.

    What is collected inside a trace (`tf.function`, `jax.jit`) belongs to that trace: return it from the traced
    function, or better use `highway_keras.gates`, which does. Layers made under `keras.RematScope` are traced one by
    one, and cannot be recorded on JAX.

    Yields:
        A dictionary that fills in the order of the calls: layer name to T. A name that comes again, because a layer is
        shared or two layers share a name, gets ":2", ":3" and so on.

    Example:
        with recording() as recorded:
            model(images, training=False)
        recorded["highway"]  # T of the layer of that name
    """
    recorded: dict[str, Any] = {}
    token = _active.set(recorded)
    try:
        yield recorded
    finally:
        _active.reset(token)


def record(name: str, transform: Any) -> None:
    """Writes T to the active recorder; does nothing where none is active.

    Args:
        name: the layer's name.
        transform: T as it was used in the call.
    """
    recorded = _active.get()
    if recorded is None:
        return
    key, again = name, 2
    while key in recorded:
        key, again = f"{name}:{again}", again + 1
    recorded[key] = transform

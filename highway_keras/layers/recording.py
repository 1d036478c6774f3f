"""Reading the gates of a whole model: while a recorder is active, every highway layer that is called writes T to it."""

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Recording(dict[str, Any]):
    """Layer name to T in the order of the calls.

    Args:
        outputs: whether to collect what the layers give, too.
    """

    def __init__(self, outputs: bool = False) -> None:
        super().__init__()
        self.layers: dict[str, Any] = {}
        """The layers that were called, by the same names."""
        self.depths: dict[str, int] = {}
        """The number of layers of those that are stacks."""
        self.masks: dict[str, Any] = {}
        """The masks of those that were called with one, of the first axes of T: true where a place counts."""
        self.outputs: dict[str, Any] | None = {} if outputs else None
        """y, of the shape of T, if asked for."""


_active: ContextVar[Recording | None] = ContextVar("highway_keras_recording", default=None)


@contextmanager
def recording(outputs: bool = False) -> Iterator[Recording]:
    """Collects the transform gates of the highway layers that are called inside the block, in this thread.

    What is collected inside a trace (`tf.function`, `jax.jit`) belongs to that trace: return it from the traced
    function, or better use `highway_keras.gates`, which does. Layers made under `keras.RematScope` are traced one by
    one, and cannot be recorded on JAX.

    Args:
        outputs: whether to collect the outputs of the layers, too, in the dictionary's `outputs`.

    Yields:
        A dictionary that fills in the order of the calls: layer name to T. A name that comes again, because a layer is
        shared or two layers share a name, gets ":2", ":3" and so on. A stack writes the gates of all its layers at
        once, `[batch, ..., depth, units]`, and its depth to the dictionary's `depths`. T has values for masked places,
        too; the dictionary's `masks` tells which places count.

    Example:
        with recording() as recorded:
            model(images, training=False)
        recorded["highway"]  # T of the layer of that name
    """
    recorded = Recording(outputs)
    token = _active.set(recorded)
    try:
        yield recorded
    finally:
        _active.reset(token)


def is_recording() -> bool:
    """Whether a recorder is active in this thread."""
    return _active.get() is not None


def is_recording_outputs() -> bool:
    """Whether the recorder that is active in this thread asks for outputs."""
    recorded = _active.get()
    return recorded is not None and recorded.outputs is not None


def record(layer: Any, transform: Any, outputs: Any = None, depth: int | None = None, mask: Any = None) -> None:
    """Writes a call to the active recorder; does nothing where none is active.

    Args:
        layer: the layer that is called.
        transform: T as it was used in the call.
        outputs: y; may be None where they are not asked for.
        depth: of a stack: its number of layers, and the length of the last axis of `transform` but one.
        mask: of the layer's inputs, if there is one.
    """
    recorded = _active.get()
    if recorded is None:
        return
    key = numbered(layer.name, recorded)
    recorded[key] = transform
    recorded.layers[key] = layer
    if recorded.outputs is not None:
        recorded.outputs[key] = outputs
    if depth is not None:
        recorded.depths[key] = depth
    if mask is not None:
        recorded.masks[key] = mask


def numbered(name: str, taken: Container[str]) -> str:
    """The name of a call: the layer's, and from the second call of that name on its number.

    Args:
        name: of the layer.
        taken: the names of the calls before.

    Example:
        >>> numbered("highway", {"highway"})
        'highway:2'
    """
    key, again = name, 2
    while key in taken:
        key, again = f"{name}:{again}", again + 1
    return key


def layer_names(stack: str, depth: int) -> list[str]:
    """The names of the layers of a stack: its own and their number, from 1, with as many digits for all.

    Args:
        stack: the stack's name, or the key of one of its calls in a recording.
        depth: its number of layers.

    Example:
        >>> layer_names("highway", 2), layer_names("highway:2", 1)
        (['highway_01', 'highway_02'], ['highway_01:2'])
    """
    digits = max(2, len(str(depth)))
    name, again = match.groups() if (match := re.fullmatch(r"(.+)(:\d+)", stack)) else (stack, "")
    return [f"{name}_{number:0{digits}}{again}" for number in range(1, depth + 1)]

"""Recording: a context that collects the transform gates of every highway layer called inside it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Recording(dict[str, Any]):
    """Maps layer names to T in call order.

    Args:
        outputs: whether to collect the layers' outputs as well.
    """

    def __init__(self, outputs: bool = False) -> None:
        super().__init__()
        self.started: set[str] = set()
        """Names of the calls so far and of the layers of stacks, also of those that have not ended: a layer around
        others ends after them."""
        self.layers: dict[str, Any] = {}
        """The called layer of each name."""
        self.depths: dict[str, int] = {}
        """Depths of the stacks among them."""
        self.masks: dict[str, Any] = {}
        """Masks of the calls that received one, over the leading axes of T: true where a position counts."""
        self.outputs: dict[str, Any] | None = {} if outputs else None
        """Outputs y, of the shape of T, if requested."""


_active: ContextVar[Recording | None] = ContextVar("highway_keras_recording", default=None)


@contextmanager
def recording(outputs: bool = False) -> Iterator[Recording]:
    """Collects the transform gates of the highway layers called inside the block, in this thread.

    Tensors collected inside a trace (`tf.function`, `jax.jit`) belong to that trace: return them from the traced
    function, or use `highway_keras.gates`, which does so. Layers created under `keras.RematScope` are traced one by one
    and cannot be recorded on JAX.

    Args:
        outputs: whether to collect the layers' outputs as well, in the dictionary's `outputs`.

    Yields:
        A dictionary from layer name to T, filled in call order. Repeated names, of shared layers or of layers with
        equal names, also within stacks, get the suffixes ":2", ":3" and so on; a layer around others is numbered before
        them. A stack writes the gates of all its layers at once, `[batch, ..., depth, units]`, and its depth to the
        dictionary's `depths`. T has values at masked positions as well; the dictionary's `masks` marks the positions
        that count.

    Example:
        with recording() as recorded:
            model(images, training=False)
        recorded["highway"]  # T of the layer named "highway"
    """
    recorded = Recording(outputs)
    token = _active.set(recorded)
    try:
        yield recorded
    finally:
        _active.reset(token)


def is_recording() -> bool:
    """Tests whether a recording is active in this thread."""
    return _active.get() is not None


def is_recording_outputs() -> bool:
    """Tests whether the recording active in this thread collects outputs."""
    recorded = _active.get()
    return recorded is not None and recorded.outputs is not None


def start_call(name: str, depth: int | None = None) -> str | None:
    """Names a call of a layer that starts, as `next_lesion` does, if a recording is active.

    Args:
        name: name of the layer.
        depth: number of layers of a stack.

    Returns:
        The name of the call, for `record`; None outside of recordings.
    """
    recorded = _active.get()
    if recorded is None:
        return None
    return call_name(name, recorded.started, depth)


def record(
    key: str | None, layer: Any, transform: Any, *, outputs: Any = None, depth: int | None = None, mask: Any = None
) -> None:
    """Adds a call to the active recording, if there is one.

    Args:
        key: name of the call, from `start_call`.
        layer: the called layer.
        transform: T as used in the call.
        outputs: y; may be None unless the recording collects outputs.
        depth: number of layers of a stack, the length of the second-to-last axis of `transform`.
        mask: mask of the layer's inputs, if any.
    """
    recorded = _active.get()
    if recorded is None or key is None:
        return
    recorded[key] = transform
    recorded.layers[key] = layer
    if recorded.outputs is not None:
        recorded.outputs[key] = outputs
    if depth is not None:
        recorded.depths[key] = depth
    if mask is not None:
        recorded.masks[key] = mask


def call_name(name: str, taken: set[str], depth: int | None = None) -> str:
    """Returns the name of a call: the layer's name, numbered from the second call on.

    A stack is also numbered if one of its layers would get the name of another call, and so is a layer with the name of
    a stack's layer.

    Args:
        name: name of the layer.
        taken: names of the previous calls and of the layers of stacks; those of this call are added.
        depth: number of layers of a stack.

    Example:
        >>> call_name("highway", {"highway"}), call_name("highway", {"highway_02"}, depth=2)
        ('highway:2', 'highway:2')
    """
    key, number = name, 2
    while not taken.isdisjoint(names := [key, *layer_names(key, depth or 0)]):
        key, number = f"{name}:{number}", number + 1
    taken.update(names)
    return key


def layer_names(stack: str, depth: int) -> list[str]:
    """Returns the names of a stack's layers: its own name with a zero-padded number from 1.

    Args:
        stack: the stack's name, or the name of one of its calls in a recording.
        depth: number of layers.

    Example:
        >>> layer_names("highway", 2), layer_names("highway:2", 1)
        (['highway_01', 'highway_02'], ['highway_01:2'])
    """
    digits = max(2, len(str(depth)))
    name, call = match.groups() if (match := re.fullmatch(r"(.+)(:\d+)", stack)) else (stack, "")
    return [f"{name}_{number:0{digits}}{call}" for number in range(1, depth + 1)]

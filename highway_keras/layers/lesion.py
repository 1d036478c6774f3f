"""Lesions: a context in which highway layers run with some of their gates closed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from keras import ops

from highway_keras.layers.recording import call_name, is_recording


class Lesion(NamedTuple):
    """The closed gates of one call of a layer or stack.

    Layers before the first closed gate compute the same as in the intact net, so their outputs can be passed in instead
    of computed again.
    """

    closed: Any
    """bool, `[units]` or, for a stack, `[depth, units]`: units with closed gates, T = 0 and C = 1, hence y = x."""
    outputs: Any = None
    """Outputs of the intact net, as collected by `recording(outputs=True)`; None computes everything."""
    spared: Any = 0
    """int: number of leading layers of this call (0 or 1; for a stack up to its depth) taken from `outputs`."""


_active: ContextVar[tuple[Mapping[str, Lesion], set[str]] | None] = ContextVar("highway_keras_lesions", default=None)


@contextmanager
def lesioned(lesions: Mapping[str, Lesion]) -> Iterator[None]:
    """Closes gates of the highway layers called inside the block, in this thread, for inference.

    Lesions may hold traced tensors, so that one compiled program serves all lesions.

    Args:
        lesions: lesion of each call, named as in `highway_keras.layers.recording`; other calls stay intact.

    Example:
        with lesioned({"highway_03": Lesion(closed=[True] * 50)}):
            model(images, training=False)  # as if this layer were removed

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 4.2.
    """
    token = _active.set((lesions, set()))
    try:
        yield
    finally:
        _active.reset(token)


def is_lesioned() -> bool:
    """Tests whether a lesion is active in this thread."""
    return _active.get() is not None


def next_lesion(name: str, depth: int | None = None) -> Lesion | None:
    """Returns the lesion of this call of a layer, if any. Counts calls, so each call must ask exactly once.

    Args:
        name: name of the layer.
        depth: number of layers of a stack.

    Raises:
        RuntimeError: if gates are being recorded.
    """
    active = _active.get()
    if active is None:
        return None
    if is_recording():
        raise RuntimeError("Gates cannot be recorded while some are closed: leave one of the two contexts.")
    lesions, calls = active
    return lesions.get(call_name(name, calls, depth))


def unless_spared(lesion: Lesion, compute: Callable[[], Any], nested: bool) -> Any:
    """Returns a single layer's outputs from the intact net if the lesion spares the layer, else computes them.

    Args:
        lesion: the lesion of this call.
        compute: computes the outputs.
        nested: whether `compute` may call other highway layers, which must count their calls even if spared.
    """
    if lesion.outputs is None:
        return compute()
    spared = ops.greater(lesion.spared, 0)
    # With a known number, as PyTorch and TensorFlow's eager mode have it, `cond` calls only the branch taken.
    if nested and hasattr(spared, "numpy"):
        return ops.where(spared, lesion.outputs, compute())
    return ops.cond(spared, lambda: lesion.outputs, compute)

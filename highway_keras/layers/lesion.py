"""Closing gates of a whole model: while a lesion is active, every highway layer that is called looks here first."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from keras import ops

from highway_keras.layers.recording import is_recording, numbered


class Lesion(NamedTuple):
    """What is different in one call of a layer, or of a stack of layers.

    What comes before the first closed gate is as in the intact net. Where the intact outputs are given, it is taken
    from there and not computed again.
    """

    closed: Any
    """bool, `[units]`, of a stack `[depth, units]`: the units whose gates are closed: T = 0 and C = 1, hence y = x."""
    outputs: Any = None
    """y of the intact net, as `recording(outputs=True)` collects it; None computes everything."""
    spared: Any = 0
    """int: how many layers of this call, 0 or 1 and of a stack up to its depth, `outputs` may stand for."""


_active: ContextVar[tuple[Mapping[str, Lesion], set[str]] | None] = ContextVar("highway_keras_lesions", default=None)


@contextmanager
def lesioned(lesions: Mapping[str, Lesion]) -> Iterator[None]:
    """Closes gates of the highway layers that are called inside the block, in this thread, in inference.

    The arrays of the lesions may be tensors of a trace, so that one compiled program serves for all lesions.

    Args:
        lesions: by the names that `highway_keras.layers.recording` gives to calls; calls that are missing stay intact.

    Example:
        with lesioned({"highway_03": Lesion(closed=[True] * 50)}):
            model(images, training=False)  # as if that layer were not there

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 4.2.
    """
    token = _active.set((lesions, set()))
    try:
        yield
    finally:
        _active.reset(token)


def is_lesioned() -> bool:
    """Whether a lesion is active in this thread."""
    return _active.get() is not None


def next_lesion(name: str) -> Lesion | None:
    """What is different in this call of a layer; None where nothing is. To be asked once a call.

    Args:
        name: of the layer.

    Raises:
        RuntimeError: if gates are recorded at the same time.
    """
    active = _active.get()
    if active is None:
        return None
    if is_recording():
        raise RuntimeError("Gates cannot be recorded while some are closed: leave one of the two blocks.")
    lesions, calls = active
    key = numbered(name, calls)
    calls.add(key)
    return lesions.get(key)


def unless_spared(lesion: Lesion, compute: Callable[[], Any]) -> Any:
    """The outputs of a single layer: those of the intact net where they are the same, else what `compute` gives."""
    if lesion.outputs is None:
        return compute()
    return ops.cond(ops.greater(lesion.spared, 0), lambda: lesion.outputs, compute)

"""Memory that was freed, and that the C library keeps for itself."""

import ctypes
from collections.abc import Callable


def _trimming() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        # Only glibc has it.
        return None
    return trim


_trim = _trimming()


def give_back() -> None:
    """Gives what is free to the system, where the C library can.

    A model that is loaded leaves holes in the memory of the one before, and glibc keeps those: an endpoint that two
    hundred versions came to grew from 114 to 200 MB without this, and stayed at 110 to 128 MB with it. It takes some
    milliseconds.

    Example:
        del session
        give_back()
    """
    if _trim is not None:
        _trim(0)

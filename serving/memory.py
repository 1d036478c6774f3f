"""How much memory the C library keeps of what was freed.

A version that is loaded leaves holes in the memory of the one before. 200 versions in turn took an endpoint from 114 to
200 MB with nothing of what is below. Under load, with a version every two seconds for four minutes, it rose from 153 to
about 170 MB with `give_back` alone, and stayed at 154 to 167 MB with both (docs/log.md).
"""

import ctypes
from collections.abc import Callable

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Bytes from which on a block has memory of its own, which goes back when it is freed. The numbers of a picture, 4 MB at
# most, come from the heap, and up to KEPT bytes of it stay when they are freed: new memory for each of the 40 arrays
# that a picture goes through takes longer than what is done with them.
LARGE = 2**23
KEPT = 2**26


def one_heap() -> None:
    """Has all threads take memory from one heap, where the C library can: what one frees another can use.

    Large blocks are not taken from the heap at all.

    To be called before there are threads. That they wait for each other was not to be seen in the endpoint's speed.

    Example:
        one_heap()
        uvicorn.run(make_app(settings))
    """
    if (mallopt := _from_glibc("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, LARGE)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def give_back() -> None:
    """Gives what is free to the system, where the C library can; takes some milliseconds.

    Example:
        del session
        give_back()
    """
    if (trim := _from_glibc("malloc_trim")) is not None:
        trim(0)


def _from_glibc(name: str) -> Callable[..., int] | None:
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    # Other libraries may have functions of these names, but not their numbers.
    return getattr(library, name) if hasattr(library, "gnu_get_libc_version") else None

"""Sets how much freed memory the C library keeps: little in an endpoint, all in a training process.

Loading a version fragments the memory that the previous one leaves behind: an endpoint would grow with every version
that it serves.
"""

import ctypes
from collections.abc import Callable, Mapping

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_NEVER = 2**31 - 1
# Size of a thread's heap on 64-bit systems: glibc unmaps an empty one unless that much is to be kept.
_THREAD_HEAP = 2**26
# glibc asks for transparent huge pages; other C libraries ignore the variable.
_TUNABLES, _HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
# Blocks of at least LARGE bytes are mapped separately and returned when freed. The arrays of an image, 4 MB at most,
# come from the heap, of which up to KEPT bytes stay: new memory for each of the 40 arrays of an image would take longer
# than computing them.
LARGE = 2**23
KEPT = 2**26


def one_heap() -> None:
    """Makes all threads share one heap, with glibc, and maps large blocks separately.

    Call it before any thread starts. Contention between threads did not show in the endpoint's speed.

    Example:
        one_heap()
        uvicorn.run(make_app(settings))
    """
    if (mallopt := _from_glibc("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, LARGE)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def keep_freed() -> None:
    """Keeps freed memory for later allocations, with glibc, until the process ends.

    Training steps allocate and free the same large arrays. Mapped anew in every step, each of their pages costs a fault
    when it is first written (docs/depth.md).
    """
    if (mallopt := _from_glibc("mallopt")) is not None:
        mallopt(_M_TOP_PAD, _THREAD_HEAP)
        mallopt(_M_MMAP_THRESHOLD, _NEVER)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


def in_huge_pages(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process that handles large arrays, which glibc then takes from huge pages.

    With small ones, the first write to each of the 10,000 pages of a photograph costs as much as decoding a part of it.

    Args:
        variables: environment of this process.

    Example:
        in_huge_pages({"LANG": "C"})  # and "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"
    """
    given = variables.get(_TUNABLES)
    return {**variables, _TUNABLES: f"{given}:{_HUGE_PAGES}" if given else _HUGE_PAGES}


def give_back() -> None:
    """Returns free memory to the system, with glibc; takes some milliseconds.

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
    # Other C libraries may have functions of these names with other constants.
    return getattr(library, name) if hasattr(library, "gnu_get_libc_version") else None

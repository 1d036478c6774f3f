"""Leaves out of a progressive JPEG file what is not seen when it is scaled down to an eighth.

A block of 8 x 8 pixels then becomes one pixel, its mean, which such files store in scans of their own. The other scans
are most of the file and of the time to decode it. Where colours are stored at half the size, a block of them becomes
2 x 2 pixels, so their scans stay.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Markers: a progressive frame with Huffman codes, a scan, the end of the image, codes, and the interval of restarts.
_FRAME, _SCAN, _END, _CODES, _RESTARTS = 0xC2, 0xDA, 0xD9, 0xC4, 0xDD
# Bytes of the longest header of a scan: that of four components.
_HEADER = 16
# Restarts within a scan, and the second byte of 0xFF as a value; 0xFF may also fill up.
_WITHIN = (0x00, *range(0xD0, 0xD8), 0xFF)
# The most blocks that one code can skip, and the code: one bit by the table below, and 14 ones.
_RUN, _RUN_CODE = 2**15 - 1, "0" + 14 * "1"


class _JpegSegment(NamedTuple):
    kind: int
    content: bytes
    """All of it, with its marker; of a scan, only its header."""
    whole: bytes
    """The same, with the values of a scan."""


def without_details(encoded: bytes) -> bytes | None:
    """Replaces scans of details by empty ones; at an eighth of the size, the pixels are bit-identical.

    Scans cannot just be left out: the decoder would make up for them, by smoothing the image.

    Args:
        encoded: the file.

    Returns:
        A shorter file; None if it is of another kind, or damaged.

    Example:
        smaller = without_details(Path("photograph.jpg").read_bytes())
    """
    try:
        segments = list(_segments(encoded))
        frames = [segment.content for segment in segments if segment.kind == _FRAME]
        dropped = _finest(_components(frames[0], 0)) if len(frames) == 1 else set()
    except (struct.error, IndexError, StopIteration):
        return None
    if not dropped:
        return None
    height, width = struct.unpack_from(">HH", frames[0], 5)
    kept = [one.whole for one in segments if one.kind != _SCAN or not _has_details(one.content, dropped)]
    blocks = (width // 8 + 8) * (height // 8 + 8)
    return b"".join([encoded[:2], *kept, *_empty_scans(sorted(dropped), blocks), bytes([0xFF, _END])])


def remaining(encoded: bytes, frame: int, scans: Sequence[int]) -> tuple[float, int] | None:
    """Estimates what `without_details` leaves of a file, from the headers alone.

    Args:
        encoded: the file.
        frame: position of its frame.
        scans: positions of its scans, ascending.

    Returns:
        The number of passes over all pixels, and bytes of the scans; None if the file stays whole.

    Raises:
        IndexError: the file ends within a header.
    """
    components = _components(encoded, frame)
    if not (dropped := _finest(components)):
        return None
    areas = {name: (factors >> 4) * (factors & 15) for name, factors in components}
    passes, size = 0.0, 0
    for start, end in zip(scans, [*scans[1:], len(encoded)], strict=True):
        header = encoded[start : start + _HEADER]
        if not _has_details(header, dropped):
            # Of a single component, it may be of fewer pixels.
            passes += areas.get(header[5], 1) / (max(areas.values()) or 1) if header[4] == 1 else 1
            size += end - start
    return passes, size


def _components(encoded: bytes, frame: int) -> list[tuple[int, int]]:
    """Returns name and sampling factors of each component."""
    first = frame + 10
    return [(encoded[at], encoded[at + 1]) for at in range(first, first + 3 * encoded[first - 1], 3)]


def _finest(components: list[tuple[int, int]]) -> set[int]:
    """Returns the names of the components at full size; none if the factors of others are larger in one direction."""
    finest = max((factors for _, factors in components), default=0)
    if any(factors >> 4 > finest >> 4 or factors & 15 > finest & 15 for _, factors in components):
        return set()
    return {name for name, factors in components if factors == finest}


def _segments(encoded: bytes) -> Iterator[_JpegSegment]:
    """Yields the segments between the start and the end of an image."""
    codes = np.frombuffer(encoded, np.uint8)
    at = np.flatnonzero(codes[:-1] == 0xFF)
    markers = at[~np.isin(codes[at + 1], _WITHIN)]
    start = 2
    while True:
        mark, kind = encoded[start], encoded[start + 1]
        if mark != 0xFF or kind in _WITHIN:
            raise IndexError("this is no segment")
        if kind == _END:
            return
        end = start + 2 + struct.unpack_from(">H", encoded, start + 2)[0]
        following = int(markers[np.searchsorted(markers, end)]) if kind == _SCAN else end
        yield _JpegSegment(kind, encoded[start:end], encoded[start:following])
        start = following


def _has_details(scan: bytes, names: set[int]) -> bool:
    """Returns whether a scan has no means of blocks, and only values of one of these components."""
    # Length, count, name and tables of the component, first value of each block. Scans of details have one component.
    count, name, first = scan[4], scan[5], scan[5 + 2 * scan[4]]
    return count == 1 and first > 0 and name in names


def _empty_scans(names: list[int], blocks: int) -> list[bytes]:
    bits = _RUN_CODE * -(-blocks // _RUN)
    bits += "1" * (-len(bits) % 8)
    values = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    # One code, of one bit, for runs of 2**14 and more blocks without values.
    table = struct.pack(">BBHB16BB", 0xFF, _CODES, 20, 0x10, 1, *15 * [0], 0xE0)
    header = [struct.pack(">BBHBBBBBB", 0xFF, _SCAN, 8, 1, name, 0, 1, 63, 0) for name in names]
    return [struct.pack(">BBHH", 0xFF, _RESTARTS, 4, 0), table, *(one + values for one in header)]

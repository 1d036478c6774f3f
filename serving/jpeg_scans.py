"""Leaves out of a progressive JPEG file what is not seen when it is scaled down to an eighth.

A block of 8 x 8 pixels then becomes one pixel, its mean, which such files store in scans of their own. The other scans
are most of the file and of the time to decode it. Where colours are stored at half the size, a block of them becomes
2 x 2 pixels, so their scans stay.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# Markers: a progressive frame with Huffman codes, a scan, the end of the image, codes, and the interval of restarts.
_FRAME, _SCAN, _END, _CODES, _RESTARTS = 0xC2, 0xDA, 0xD9, 0xC4, 0xDD
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
    except (struct.error, IndexError, StopIteration):
        return None
    frames = [segment.content for segment in segments if segment.kind == _FRAME]
    if len(frames) != 1:
        return None
    height, width, count = struct.unpack_from(">HHB", frames[0], 5)
    # Name and sampling factors of each component.
    components = [tuple(frames[0][at : at + 2]) for at in range(10, 10 + 3 * count, 3)]
    finest = max(factors for _, factors in components)
    if any(factors >> 4 > finest >> 4 or factors & 15 > finest & 15 for _, factors in components):
        return None
    dropped = {name for name, factors in components if factors == finest}
    kept = [one.whole for one in segments if one.kind != _SCAN or not _has_details(one.content, dropped)]
    blocks = (width // 8 + 8) * (height // 8 + 8)
    return b"".join([encoded[:2], *kept, *_empty_scans(sorted(dropped), blocks), bytes([0xFF, _END])])


def _segments(encoded: bytes) -> Iterator[_JpegSegment]:
    """Yields the segments between the start and the end of an image."""
    codes = np.frombuffer(encoded, np.uint8)
    at = np.flatnonzero(codes[:-1] == 0xFF)
    markers = at[~np.isin(codes[at + 1], _WITHIN)]
    start = 2
    while True:
        mark, kind = encoded[start], encoded[start + 1]
        if mark != 0xFF:
            raise IndexError("this is no marker")
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

"""What the header of a picture file tells of the work that it will be: 6 kB can hold 50 million pixels.

The nanoseconds are those of one core of an EPYC (docs/benchmarks/photographs.csv). They decide where a file is
decoded and in which order, so that it does no harm if they are off by a factor of two.
"""

import struct
from typing import NamedTuple

from serving.pictures import SIDE, jpeg_ratio

# Up to these seconds a picture is decoded in the endpoint's own process, in turn with all others.
LIGHT = 0.005
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
# By colour type: grey, colours, palette, grey with alpha, colours with alpha.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Parts of a header that are gone through, and bytes of text, colour profile and EXIF in it that are nothing special.
_PARTS, _EXTRAS = 64, 2**14
# A few bytes of these become a million, before the pixels or behind.
_COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")
# Of a JPEG file in which scan after scan adds to all pixels.
_PROGRESSIVE, _SCANS = 0xC2, 10
# Nanoseconds in which a net's own conversion takes a pixel, and the most pixels that are left for it.
_SEEN, _MOST_SEEN = 15, (2 * SIDE) ** 2


class Glance(NamedTuple):
    """An estimate, for which nothing was decoded."""

    seconds: float
    """To decode the file and to make a net's input of it."""
    plain: bool
    """Whether all there is in the file was seen at a glance."""

    @property
    def light(self) -> bool:
        """Whether it is plain, and of little work."""
        return self.plain and self.seconds <= LIGHT


# Of other formats, of damaged files, and of those that are odd.
UNKNOWN = Glance(1.0, plain=False)


def glance(encoded: bytes) -> Glance:
    """Estimates the work that a picture file will be.

    Args:
        encoded: the whole file.

    Example:
        glance(Path("photograph.jpg").read_bytes()).seconds  # 0.04
    """
    try:
        if encoded.startswith(_PNG):
            return _png(encoded)
        if encoded.startswith(_JPEG):
            return _jpeg(encoded)
    except (struct.error, IndexError):
        # It ends before its pixels.
        pass
    return UNKNOWN


def _png(encoded: bytes) -> Glance:
    width, height, bits, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", encoded, 16)
    channels = _CHANNELS.get(colour, 4) * (2 if bits == 16 else 1)
    seconds = _seconds(width * height, (2 + 3 * channels) * (2 if interlaced else 1), len(encoded), 8)
    at, extras = len(_PNG), 0
    for _ in range(_PARTS):
        size, kind = struct.unpack_from(">I4s", encoded, at)
        if kind == b"IDAT":
            plain = extras <= _EXTRAS and seconds <= LIGHT and not any(name in encoded for name in _COMPRESSED)
            return Glance(seconds, plain)
        extras += size if kind not in (b"IHDR", b"PLTE", b"tRNS") else 0
        at += 12 + size
    return UNKNOWN


def _jpeg(encoded: bytes) -> Glance:
    at, extras = len(_JPEG), 0
    for _ in range(_PARTS):
        mark, kind, size = struct.unpack_from(">BBH", encoded, at)
        if mark != 0xFF:
            return UNKNOWN
        # What begins a frame; the others of these numbers are tables.
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", encoded, at + 5)
            each = 1.5 if jpeg_ratio(width, height) > 1 else 5.0
            if kind == _PROGRESSIVE:
                each += max(encoded.count(b"\xff\xda", 0, 2**20), _SCANS)
            return Glance(_seconds(width * height, each, len(encoded), 6), extras <= _EXTRAS)
        extras += size if 0xE0 <= kind <= 0xEF or kind == 0xFE else 0
        at += 2 + size
    return UNKNOWN


def _seconds(pixels: int, each: float, size: int, byte: float) -> float:
    return 1e-9 * (pixels * each + size * byte + min(pixels, _MOST_SEEN) * _SEEN)

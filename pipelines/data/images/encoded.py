"""From the bytes of a PNG or JPEG file to pixels with an alpha channel, the right way up and no larger than needed."""

import tensorflow as tf

from pipelines.data.images.shrunk import shrunk
from serving.pictures import RATIOS, SIDE

# Where EXIF begins in a JPEG file, and in a PNG file; what is behind is the same.
MARKERS = (b"Exif\0\0", b"eXIf")
# Bytes at the start of a file in which it is looked for, and entries of its directory.
HEAD, ENTRIES = 65_536, 64
ORIENTATION = 0x0112
# Place of the byte in a PNG file that says what its channels are.
PNG_KIND = 25


def decoded(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes, scales down and turns, as `serving.pictures.decode` does.

    Args:
        encoded: scalar string, a whole PNG or JPEG file. 16 bits become 8, palettes colours, CMYK RGB.

    Returns:
        uint8 [h, w, 4]: red, green, blue, alpha, with sides of less than `2 * SIDE`.

    Raises:
        InvalidArgumentError: the bytes are neither.
    """

    def opaque(rgb: tf.Tensor) -> tf.Tensor:
        return tf.pad(rgb, ((0, 0), (0, 0), (0, 1)), constant_values=255)

    raw = _bytes(encoded)
    # TensorFlow's own alpha channel is 1, not 255, for pictures of one bit a pixel.
    transparent = (raw[PNG_KIND] & 4 > 0) | (_behind(raw, b"tRNS") < 2 * HEAD)
    pixels = tf.case(
        [
            (tf.io.is_jpeg(encoded), lambda: opaque(_jpeg(encoded))),
            (transparent, lambda: tf.io.decode_png(encoded, channels=4)),
        ],
        lambda: opaque(tf.io.decode_png(encoded, channels=3)),
    )
    return turned(shrunk(tf.ensure_shape(pixels, (None, None, 4))), orientation(encoded))


def _jpeg(encoded: tf.Tensor) -> tf.Tensor:
    sides = tf.image.extract_jpeg_shape(encoded)[:2]
    most = tf.minimum(tf.reduce_max(sides) // SIDE, tf.reduce_min(sides))

    def smaller(ratio: int) -> tf.Tensor:
        # The slow, exact transform, which is Pillow's too.
        return tf.io.decode_jpeg(encoded, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")

    cases = [(most >= ratio, lambda ratio=ratio: smaller(ratio)) for ratio in RATIOS]
    return tf.case(cases, lambda: smaller(1))


def turned(pixels: tf.Tensor, way: tf.Tensor) -> tf.Tensor:
    """Undoes an orientation of EXIF: 1 is upright, 2 to 4 are mirrored or upside down, 5 to 8 lie on a side."""
    pixels = tf.cond(way >= 5, lambda: _transposed(pixels), lambda: pixels)
    for axis, ways in ((1, (2, 3, 6, 7)), (0, (3, 4, 7, 8))):
        mirrored = tf.reduce_any(way == tf.constant(ways))
        pixels = tf.cond(mirrored, lambda pixels=pixels, axis=axis: tf.reverse(pixels, (axis,)), lambda p=pixels: p)
    return pixels


def _transposed(pixels: tf.Tensor) -> tf.Tensor:
    # Not tf.transpose: asked to transpose bytes, oneDNN complains on standard error.
    height, width = tf.unstack(tf.shape(pixels)[:2])
    places = tf.range(width)[:, None] + width * tf.range(height)[None]
    return tf.gather(tf.reshape(pixels, (-1, 4)), places)


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """The orientation in a file's EXIF, int32 from 1 to 8; 1 if there is none."""
    raw = _bytes(encoded)
    base = tf.reduce_min(tf.stack([_behind(raw, marker) for marker in MARKERS]))

    def byte(at: tf.Tensor) -> tf.Tensor:
        return tf.gather(raw, tf.clip_by_value(base + at, 0, tf.size(raw) - 1))

    little = byte(tf.constant(0)) == ord("I")

    def number(at: tf.Tensor, size: int) -> tf.Tensor:
        places = [byte(at + place) for place in range(size)]
        high = sum(value * 256 ** (size - 1 - place) for place, value in enumerate(places))
        low = sum(value * 256**place for place, value in enumerate(places))
        return tf.where(little, low, high)

    directory = tf.minimum(number(tf.constant(4), 4), HEAD)
    entries = directory + 2 + 12 * tf.range(ENTRIES)
    real = tf.range(ENTRIES) < number(directory, 2)
    found = real & (number(entries, 2) == ORIENTATION)
    way = tf.reduce_max(tf.where(found, number(entries + 8, 2), 0))
    return tf.where((base < tf.size(raw)) & (way >= 1) & (way <= 8), way, 1)


def _bytes(encoded: tf.Tensor) -> tf.Tensor:
    """The start of a file, int32, with some zeros behind it."""
    raw = tf.io.decode_raw(tf.strings.substr(encoded, 0, HEAD), tf.uint8)
    return tf.pad(tf.cast(raw, tf.int32), ((0, PNG_KIND + 1),))


def _behind(raw: tf.Tensor, marker: bytes) -> tf.Tensor:
    """The first place behind a marker; far behind the end if it is not there."""
    count = tf.maximum(tf.size(raw) - len(marker), 0)
    same = tf.reduce_all(tf.stack([raw[at : at + count] == code for at, code in enumerate(marker)]), axis=0)
    places = tf.where(same)[:, 0]
    first = tf.concat([tf.cast(places, tf.int32), [2 * HEAD]], axis=0)[0]
    return first + len(marker)

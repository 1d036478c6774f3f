"""Decoding of PNG and JPEG files to upright RGBA pixels, no larger than needed, like that of `serving.image_files`."""

import tensorflow as tf

from serving.image_files import RATIOS, SIDE

# Markers of EXIF data in JPEG and PNG files; the data after both markers have the same format.
MARKERS = (b"Exif\0\0", b"eXIf")
# Maximum number of bytes at the start of a file, and of directory entries, that are searched for EXIF data.
HEAD, ENTRIES = 65_536, 64
ORIENTATION = 0x0112
# Offset of the colour type in a PNG file.
PNG_KIND = 25


def decode(encoded: tf.Tensor, side: int = SIDE) -> tf.Tensor:
    """Decodes, downscales and rotates a file as `serving.image_files.decode` does.

    Args:
        encoded: scalar string, a whole PNG or JPEG file. 16 bits become 8; palettes and CMYK become RGB.
        side: length of the shorter side that is enough; see `serving.image_files.reduction`.

    Returns:
        uint8 [h, w, 4]: red, green, blue, alpha.

    Raises:
        InvalidArgumentError: the bytes are neither PNG nor JPEG.
    """

    def opaque(rgb: tf.Tensor) -> tf.Tensor:
        return tf.pad(rgb, ((0, 0), (0, 0), (0, 1)), constant_values=255)

    raw = _bytes(encoded)
    # TensorFlow sets alpha to 1, not 255, for images of one bit per pixel.
    transparent = (raw[PNG_KIND] & 4 > 0) | (_after(raw, b"tRNS") < 2 * HEAD)
    pixels = tf.case(
        [
            (tf.io.is_jpeg(encoded), lambda: opaque(_jpeg(encoded, side))),
            (transparent, lambda: tf.io.decode_png(encoded, channels=4)),
        ],
        lambda: opaque(tf.io.decode_png(encoded, channels=3)),
    )
    return upright(shrunk(tf.ensure_shape(pixels, (None, None, 4)), side), orientation(encoded))


def _jpeg(encoded: tf.Tensor, side: int) -> tf.Tensor:
    sides = tf.image.extract_jpeg_shape(encoded)[:2]
    most = tf.minimum(_reduction(sides, side), tf.reduce_min(sides))

    def smaller(ratio: int) -> tf.Tensor:
        # This transform is slow but exact, and Pillow uses it too.
        return tf.io.decode_jpeg(encoded, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")

    cases = [(most >= ratio, lambda ratio=ratio: smaller(ratio)) for ratio in RATIOS]
    return tf.case(cases, lambda: smaller(1))


def upright(pixels: tf.Tensor, way: tf.Tensor) -> tf.Tensor:
    """Undoes an EXIF orientation: 1 is upright, 2 to 4 are mirrored or upside down, 5 to 8 are rotated by 90°."""
    pixels = tf.cond(way >= 5, lambda: _transposed(pixels), lambda: pixels)
    for axis, ways in ((1, (2, 3, 6, 7)), (0, (3, 4, 7, 8))):
        mirrored = tf.reduce_any(way == tf.constant(ways))
        pixels = tf.cond(mirrored, lambda pixels=pixels, axis=axis: tf.reverse(pixels, (axis,)), lambda p=pixels: p)
    return pixels


def _transposed(pixels: tf.Tensor) -> tf.Tensor:
    # tf.transpose is avoided because, for bytes, oneDNN prints warnings to standard error.
    height, width = tf.unstack(tf.shape(pixels)[:2])
    places = tf.range(width)[:, None] + width * tf.range(height)[None]
    return tf.gather(tf.reshape(pixels, (-1, 4)), places)


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Reads the EXIF orientation of a file, int32 from 1 to 8; 1 if there is none."""
    raw = _bytes(encoded)
    base = tf.reduce_min(tf.stack([_after(raw, marker) for marker in MARKERS]))

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


def shrunk(rgba: tf.Tensor, side: int = SIDE) -> tf.Tensor:
    """Downscales a large image by an integer factor, averaging alpha-weighted pixels.

    Args:
        rgba: uint8 [h, w, 4].
        side: length of the shorter side that is enough; see `serving.image_files.reduction`.

    Returns:
        uint8 [h, w, 4]; unchanged if it is small enough.
    """
    factor = _reduction(tf.shape(rgba)[:2], side)
    return tf.cond(factor < 2, lambda: rgba, lambda: _reduced(rgba, factor))


def _reduction(sides: tf.Tensor, side: int) -> tf.Tensor:
    """Computes `serving.image_files.reduction`; 0 counts as 1."""
    return tf.maximum(tf.reduce_max(sides) // SIDE, tf.reduce_min(sides) // side)


def _reduced(rgba: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    height, width = tf.unstack(tf.shape(rgba)[:2])
    down, across = tf.minimum(factor, height), tf.minimum(factor, width)
    columns = -(-width // across)
    # The last column may be narrower.
    widths = tf.minimum(across, width - across * tf.range(columns))

    def row(number: tf.Tensor) -> tf.Tensor:
        stripe = tf.cast(rgba[number * down : (number + 1) * down], tf.float32)
        colour, alpha = stripe[..., :3], stripe[..., 3:]
        sums = tf.reduce_sum(tf.concat([colour * alpha, alpha], axis=-1), axis=0)
        sums = tf.pad(sums, ((0, columns * across - width), (0, 0)))
        sums = tf.reduce_sum(tf.reshape(sums, (columns, across, 4)), axis=1)
        area = tf.cast(widths * tf.shape(stripe)[0], tf.float32)[:, None]
        means = tf.concat([tf.math.divide_no_nan(sums[:, :3], sums[:, 3:]), sums[:, 3:] / area], axis=-1)
        return tf.cast(tf.round(means), tf.uint8)

    # Row by row, because the whole image in float32 would take four times the memory.
    rows = tf.range(-(-height // down))
    return tf.map_fn(row, rows, fn_output_signature=tf.TensorSpec((None, 4), tf.uint8))


def _bytes(encoded: tf.Tensor) -> tf.Tensor:
    """The start of a file, int32, zero-padded."""
    raw = tf.io.decode_raw(tf.strings.substr(encoded, 0, HEAD), tf.uint8)
    return tf.pad(tf.cast(raw, tf.int32), ((0, PNG_KIND + 1),))


def _after(raw: tf.Tensor, marker: bytes) -> tf.Tensor:
    """The first position after a marker; far beyond the end if there is none."""
    count = tf.maximum(tf.size(raw) - len(marker), 0)
    same = tf.reduce_all(tf.stack([raw[at : at + count] == code for at, code in enumerate(marker)]), axis=0)
    places = tf.where(same)[:, 0]
    first = tf.concat([tf.cast(places, tf.int32), [2 * HEAD]], axis=0)[0]
    return first + len(marker)

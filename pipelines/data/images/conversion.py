"""Conversion of images of any size to the input of a net, for digits and for natural images.

Colours are processed as separate planes, [h, w]: with [h, w, 3], ONNX Runtime takes far longer. A product with a matrix
separates them, faster than slices.
"""

from functools import cache, reduce
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from pipelines.core.errors import UserError
from pipelines.data.images import digit
from pipelines.data.images.digit import SIDE
from pipelines.data.images.rectangle import Rectangle
from pipelines.data.images.resampling import lanczos
from serving import image_files
from serving.inputs import INPUT
from serving.manifest import BOXES, CROP, RGBA, ConversionKind

# Data sets of digits; all others hold natural images, unless the user says otherwise.
DIGITS = ("mnist", "mnist_5k")
FITS: dict[str, ConversionKind] = {"crop": "natural", "pad": "padded", "squash": "squashed"}
# Weights of red, green and blue (ITU-R BT.601), as in JPEG and Pillow.
LUMINANCE = (0.299, 0.587, 0.114)
# Matrices by which pixels are multiplied, one row for each plane: red, green, blue and opacity; or red, green - red,
# blue - red and opacity. From the latter, the luminance of grey pixels is exact: the differences are 0, while the three
# weights do not sum to 1 in float32.
COLOURS = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))
DIFFERENCES = ((1.0, 0.0, 0.0, 0.0), (-1.0, 1.0, 0.0, 0.0), (-1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))
RGBA_SPEC = tf.TensorSpec((None, None, 4), tf.uint8, name=RGBA)
# Names in `ConversionParts`.
GREY, STORED = "grey", "stored"
WHITE = 255.0
# Grey level of the bars of a padded image: near the mean of photographs, which preprocessing subtracts.
BARS = 127.0
OPAQUE = 255.0
# Pixels of an image file for each pixel of the input, along a side, that are enough: with more, even the input of noisy
# photographs hardly changes.
ENOUGH = 3
# Levels by which a channel of a pixel must differ from a frame's colour, and the share of a row of pixels that may
# differ within the frame: compression blurs edges.
DIFFERENT, STRAY = 20.0, 0.05
# The edge of a framed photograph is examined this many pixels inside it. This share of it must differ from the frame;
# of an object before an empty background, only a few pixels reach so far.
INSIDE, EDGE = 4, 0.75


def kind_of(data: str, fit: Literal["crop", "pad", "squash"] = "crop") -> ConversionKind:
    """Returns the kind of the images of a data set, by its TFDS name and how its images got their aspect ratio."""
    return "digit" if data in DIGITS else FITS[fit]


@cache
def converter(kind: ConversionKind, shape: tuple[int, ...]) -> tf.types.experimental.PolymorphicFunction:
    """Returns the function from an image of any size to the input of a net.

    Args:
        kind: "digit", "natural", "padded" or "squashed".
        shape: height, width and channels of the input.

    Returns:
        A `tf.function` from `rgba`, uint8 [h, w, 4], to a dict with `image`, uint8 of `shape`; for digits, also
        `boxes`: see `pipelines.data.images.digit`; and for natural images `crop`, float32 [4]: top, bottom, left and
        right of the part that the result shows, from 0 to 1.

    Raises:
        UserError: a net for digits does not take 28 x 28 grey pixels.

    Example:
        converter("digit", (28, 28, 1))(rgba)["image"]
    """
    if kind == "digit" and shape != (SIDE, SIDE, 1):
        raise UserError(
            f"images of digits become {SIDE} x {SIDE} grey pixels, and this net takes images of {shape}. "
            "Export it with --pictures natural."
        )

    height, width, channels = shape

    @_traced(RGBA_SPEC)
    def convert(rgba: tf.Tensor) -> dict[str, tf.Tensor]:
        if kind == "digit":
            return _named(digit.digit(written(rgba)))
        image, crop = natural(rgba, height, width, channels, kind)
        return {INPUT: tf.ensure_shape(image, shape)} | ({CROP: crop} if kind == "natural" else {})

    return convert


def side_of(kind: ConversionKind, shape: tuple[int, ...]) -> int:
    """Returns the length of an image's shorter side that is enough before conversion; see `serving.image_files`.

    Args:
        kind: "digit", which takes up little of a photograph, or another.
        shape: height, width and channels of the input.

    Example:
        side_of("natural", (32, 32, 3))  # 96
    """
    return image_files.SIDE if kind == "digit" else min(image_files.SIDE, ENOUGH * max(shape[:2]))


class ConversionParts(NamedTuple):
    """The parts of the conversion of digits, as traced functions that return dicts."""

    look: Any
    """From `rgba` to `grey`, and to `stored`: whether the digit is already as MNIST's are."""
    stored: Any
    """From `grey` to the results of a stored digit."""
    written: Any
    """From `grey` to the results of a digit on paper."""


def parts() -> ConversionParts:
    """Returns the parts of the conversion of digits, for a graph that is put together from them."""
    grey_spec = tf.TensorSpec((None, None), tf.float32, name=GREY)

    def look(rgba: tf.Tensor) -> dict[str, tf.Tensor]:
        seen = written(rgba)
        return {GREY: seen, STORED: digit.is_stored(seen)}

    return ConversionParts(
        _traced(RGBA_SPEC)(look),
        _traced(grey_spec)(lambda grey: _named(digit.stored(grey))),
        _traced(grey_spec)(lambda grey: _named(digit.written(grey))),
    )


def _traced(spec: tf.TensorSpec) -> Any:
    # Conditions and loops are TensorFlow's own: AutoGraph would spend most of the tracing time looking for Python's.
    return tf.function(input_signature=[spec], autograph=False)


def _named(seen: digit.NormalizedDigit) -> dict[str, tf.Tensor]:
    # Not in the branches of a condition: TensorFlow's optimizer would take the size of one branch for that of both.
    image = tf.ensure_shape(tf.cast(seen.image, tf.uint8)[..., None], (SIDE, SIDE, 1))
    return {INPUT: image, BOXES: tf.ensure_shape(seen.boxes, (None, 4))}


def natural(
    rgba: tf.Tensor, height: int, width: int, channels: int, kind: ConversionKind = "natural"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives a photograph the right aspect ratio and resizes it.

    Transparent parts show white paper, as in a viewer. The filter is Lanczos's, as in Pillow; an image of the
    right size is unchanged. "natural" leaves out a frame around the photograph, or bars on two sides of it.

    Args:
        rgba: uint8 [h, w, 4].
        height: height of the result.
        width: width of the result.
        channels: 3, or 1 for the luminance alone.
        kind: "natural" crops the largest centred part, "padded" adds grey bars, "squashed" distorts.

    Returns:
        uint8 [height, width, channels]; and top, bottom, left and right of the part that it shows, float32 [4], from 0
        to 1, or beyond for bars.
    """
    planes = shown(rgba, channels)
    down, across, _ = tf.unstack(tf.cast(tf.shape(rgba), tf.float32))
    part = Rectangle(tf.zeros(()), down, tf.zeros(()), across)
    if kind == "natural":
        # Most photographs are not searched for a frame, because their corners differ.
        corners = tf.reduce_max(tf.abs(planes[:, -1, -1] - planes[:, 0, 0]))
        may_have_frame = (corners <= DIFFERENT) & ((down != height) | (across != width))
        part = tf.cond(may_have_frame, lambda: photograph(planes), lambda: part)
    # Height and width of the part of the image that becomes a pixel.
    cell = [part.height / height, part.width / width]
    if kind != "squashed":
        cell = [(tf.minimum if kind == "natural" else tf.maximum)(*cell)] * 2
    shown_size = cell[0] * height, cell[1] * width
    top, left = (part.top + part.bottom - shown_size[0]) / 2, (part.left + part.right - shown_size[1]) / 2
    rows, filled_rows = lanczos(top, cell[0], height, down)
    columns, filled_columns = lanczos(left, cell[1], width, across)
    small = rows @ planes @ tf.transpose(columns)
    crop = tf.stack([top / down, (top + shown_size[0]) / down, left / across, (left + shown_size[1]) / across])
    if kind == "padded":
        small = tf.where(filled_rows[:, None] & filled_columns, small, BARS)
    return tf.cast(tf.round(tf.clip_by_value(tf.transpose(small, (1, 2, 0)), 0, 255)), tf.uint8), crop


def photograph(planes: tf.Tensor) -> Rectangle:
    """Finds the photograph within a frame of one colour, or between two bars.

    Args:
        planes: float32 [channels, h, w], 0 to 255.

    Returns:
        Its sides in pixels, float32; those of the whole image if nothing frames it.
    """
    differences = tf.unstack(tf.abs(planes - planes[:, :1, :1]))
    # A maximum over an axis of 3 takes longer.
    differs = tf.cast(reduce(tf.maximum, differences) > DIFFERENT, tf.float32)
    # Shares of the pixels of each row, and of each column, that differ from the frame; and which do not belong to it.
    down, across = (tf.reduce_mean(differs, axis=axis) for axis in (1, 0))
    within = [tf.cast(shares > STRAY, tf.float32) for shares in (down, across)]
    return Rectangle(
        *_between_bars(down, within[0], EDGE * tf.reduce_mean(within[1])),
        *_between_bars(across, within[1], EDGE * tf.reduce_mean(within[0])),
    )


def _between_bars(shares: tf.Tensor, within: tf.Tensor, edge: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the first row and the end of a photograph between bars above and below, or of all rows without them.

    Args:
        shares: share of the pixels of each row that differ from the bars.
        within: which rows do not belong to the bars, float32, 0 or 1.
        edge: the least share at the edges of a photograph.
    """
    size = tf.size(shares, out_type=tf.int64)
    # Both are 0 if there is no such row.
    above, below = tf.argmax(within), tf.argmax(within[::-1])
    ends = tf.minimum(
        tf.gather(shares, tf.minimum(above + INSIDE, size - 1)),
        tf.gather(shares, tf.maximum(size - 1 - below - INSIDE, 0)),
    )
    found = tf.cast((tf.minimum(above, below) > 0) & (ends >= edge), tf.int64)
    return tf.cast(found * above, tf.float32), tf.cast(size - found * below, tf.float32)


def shown(rgba: tf.Tensor, channels: int = 3) -> tf.Tensor:
    """Blends an image onto white, as a viewer does.

    Args:
        rgba: uint8 [h, w, 4].
        channels: 3, or 1 for the luminance alone, which is exact for grey pixels.

    Returns:
        float32 [channels, h, w], 0 to 255.
    """
    planes = _separated(rgba, COLOURS if channels == 3 else DIFFERENCES)

    def seen() -> tf.Tensor:
        return planes[:3] if channels == 3 else _luminance(planes)

    # Computed in each branch: a value that a branch merely passes through is copied.
    pixels = tf.cond(_is_opaque(planes), seen, lambda: _over(seen(), planes, WHITE))
    return tf.reshape(pixels, tf.concat([[channels], tf.shape(rgba)[:2]], 0))


def written(rgba: tf.Tensor) -> tf.Tensor:
    """Converts handwriting to grey: on white if its ink is dark, on black if its ink is light.

    Only transparent images need that choice: a canvas stores strokes without paper.

    Args:
        rgba: uint8 [h, w, 4].

    Returns:
        float32 [h, w], 0 to 255; exact for grey pixels.
    """
    planes = _separated(rgba, DIFFERENCES)

    def on_its_paper() -> tf.Tensor:
        grey, weight = _luminance(planes), planes[3:]
        mean = tf.reduce_sum(grey * weight) / tf.maximum(tf.reduce_sum(weight), 1.0)
        return _over(grey, planes, tf.where(mean > WHITE / 2, 0.0, WHITE))

    return tf.reshape(tf.cond(_is_opaque(planes), lambda: _luminance(planes), on_its_paper), tf.shape(rgba)[:2])


def _separated(rgba: tf.Tensor, matrix: tuple[tuple[float, ...], ...]) -> tf.Tensor:
    """Returns float32 [4, h * w], the last of which is the opacity."""
    return tf.matmul(matrix, tf.cast(tf.reshape(rgba, (-1, 4)), tf.float32), transpose_b=True)


def _luminance(planes: tf.Tensor) -> tf.Tensor:
    """Returns float32 [1, h * w]."""
    return tf.matmul([[1.0, *LUMINANCE[1:], 0.0]], planes)


def _is_opaque(planes: tf.Tensor) -> tf.Tensor:
    return tf.reduce_min(planes, axis=1)[3] == OPAQUE


def _over(pixels: tf.Tensor, planes: tf.Tensor, background: tf.Tensor | float) -> tf.Tensor:
    share = planes[3:] / OPAQUE
    return pixels * share + background * (1 - share)

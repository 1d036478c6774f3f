"""Connected components of a grid of cells, in operations that TensorFlow and ONNX Runtime share."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images.rectangle import Rectangle

# Rounds of labelling; a spiral of noise that needs more would fall into several components.
ROUNDS = 32
# Steps from cell to cell in each round, which are much cheaper than a jump.
STEPS = 4


class Components(NamedTuple):
    """Measurements of components, float32 [n + 1] each: row i is the component with label i.

    Row 0 and most others are empty, as a component is labelled with the number of its last cell: their area is 0, and
    the longer side of their box negative.
    """

    area: tf.Tensor
    outline: tf.Tensor
    """Length of its outline, along the sides of cells."""
    border: tf.Tensor
    """Length of that part of its outline that is on the edge of the grid."""
    side: tf.Tensor
    """Length of that part of its outline that is on one side of the grid, for the side with most of it."""
    box: Rectangle

    def rows(self, labels: tf.Tensor) -> "Components":
        """Returns the measurements of some components."""
        return tf.nest.map_structure(lambda values: tf.gather(values, labels), self)


def label(mask: tf.Tensor) -> tf.Tensor:
    """Labels the components of masks; cells that share a corner are connected.

    Each cell takes the highest number in its neighbourhood, a few times, and then the number that the cell of that
    number has: the distances that numbers travel double each round.

    Args:
        mask: bool [maps, rows, columns], of known shape.

    Returns:
        int32 of the same shape: 0 outside the masks, and otherwise the number of the last cell of the component,
        counted from 1 through all maps.
    """
    inside = tf.cast(mask, tf.float32)
    maps, rows, columns = mask.shape
    # Sums that depend on the mask: the numbers as a constant would take 100 kB in each exported graph.
    first = np.arange(0, mask.shape.num_elements(), columns, dtype=np.float32).reshape(maps, rows, 1)
    numbers = inside * first + inside * np.arange(1, columns + 1, dtype=np.float32)

    def spread(_: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        near = labels[..., None]
        for _ in range(STEPS):
            near = tf.nn.max_pool2d(near, 3, 1, "SAME") * inside[..., None]
        places = tf.cast(tf.reshape(near, (-1,)), tf.int32)
        jumped = tf.gather(tf.concat([[0.0], tf.reshape(near, (-1,))], axis=0), places)
        found = tf.reshape(jumped, inside.shape)
        return tf.reduce_any(found != labels), found

    _, labels = tf.while_loop(lambda more, _: more, spread, (True, numbers), maximum_iterations=ROUNDS)
    return tf.cast(labels, tf.int32)


def measure(labels: tf.Tensor, down: tf.Tensor, across: tf.Tensor, least: int) -> Components:
    """Measures labelled components.

    Args:
        labels: int32 [maps, rows, columns], from `label`.
        down: height of a cell, in any unit.
        across: width of a cell, in the same unit.
        least: minimum number of rows after row 0, empty ones included.

    Returns:
        The measurements, in this unit.
    """
    _, rows, columns = labels.shape
    around = tf.pad(labels, ((0, 0), (1, 1), (1, 1)))
    above, below, before, after = (
        tf.cast(other != labels, tf.float32)
        for other in (around[:, :-2, 1:-1], around[:, 2:, 1:-1], around[:, 1:-1, :-2], around[:, 1:-1, 2:])
    )
    # Few cells are labelled, and scattering takes longer than all else.
    at = tf.where(labels > 0)
    y, x = (tf.cast(at[:, axis], tf.float32) for axis in (1, 2))
    level, upright = (tf.gather_nd(sides, at) for sides in (above + below, before + after))
    on_sides = (
        tf.cast(value == last, tf.float32) for value, size in ((y, rows), (x, columns)) for last in (0, size - 1)
    )
    places, count = tf.gather_nd(labels, at)[:, None], tf.maximum(tf.reduce_max(labels), least) + 1
    sides = tf.stack([tf.ones_like(y), level, upright, *on_sides], axis=1)
    sums = tf.tensor_scatter_nd_add(tf.zeros((count, sides.shape[1])), places, sides)
    # Both ends as maxima, of numbers that are not negative.
    corners = tf.stack([rows - y, y + 1, columns - x, x + 1], axis=1)
    ends = tf.tensor_scatter_nd_max(tf.zeros((count, corners.shape[1])), places, corners)
    area, levels, uprights, first_row, last_row, first_column, last_column = tf.unstack(sums, axis=1)
    top, bottom, left, right = tf.unstack(ends, axis=1)
    return Components(
        area * down * across,
        levels * across + uprights * down,
        (first_row + last_row) * across + (first_column + last_column) * down,
        tf.maximum(tf.maximum(first_row, last_row) * across, tf.maximum(first_column, last_column) * down),
        Rectangle((rows - top) * down, bottom * down, (columns - left) * across, right * across),
    )

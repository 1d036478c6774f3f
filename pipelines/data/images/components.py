"""Connected components of a grid of cells, in operations that TensorFlow and ONNX Runtime share."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Rounds of labelling; a spiral of noise that needs more would fall into several components.
ROUNDS = 48


class Components(NamedTuple):
    """Measurements of components, float32 [n + 1] each: row 0 is everything else, row i the one with label i.

    Most rows are empty: a component is labelled with the number of its last cell.
    """

    area: tf.Tensor
    outline: tf.Tensor
    """Length of its outline, along the sides of cells."""
    border: tf.Tensor
    """Length of that part of its outline that is on the edge of the grid."""
    top: tf.Tensor
    bottom: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor

    @property
    def longest(self) -> tf.Tensor:
        """The longer side of the bounding box."""
        return tf.maximum(self.bottom - self.top, self.right - self.left)

    def rows(self, labels: tf.Tensor) -> "Components":
        """Returns the measurements of some components."""
        return Components(*(tf.gather(values, labels) for values in self))


def label(mask: tf.Tensor) -> tf.Tensor:
    """Labels the components of masks; cells that share a corner are connected.

    Each cell takes the highest number in its neighbourhood, and then the number that the cell of that number has: the
    distances that numbers travel double each round.

    Args:
        mask: bool [maps, rows, columns], of known shape.

    Returns:
        int32 of the same shape: 0 outside the masks, and otherwise the number of the last cell of the component,
        counted from 1 through all maps.
    """
    inside = tf.cast(mask, tf.float32)
    count = inside.shape.num_elements()
    numbers = np.arange(1, count + 1, dtype=np.float32).reshape(inside.shape) * inside

    def spread(_: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        near = tf.nn.max_pool2d(labels[..., None], 3, 1, "SAME")[..., 0] * inside
        places = tf.cast(tf.reshape(near, (-1,)), tf.int32)
        for _ in range(2):
            places = tf.gather(tf.concat([[0], places], axis=0), places)
        found = tf.reshape(tf.cast(places, tf.float32), inside.shape)
        return tf.reduce_any(found != labels), found

    _, labels = tf.while_loop(lambda more, _: more, spread, (True, numbers), maximum_iterations=ROUNDS)
    return tf.cast(labels, tf.int32)


def measure(labels: tf.Tensor, down: tf.Tensor, across: tf.Tensor) -> Components:
    """Measures labelled components.

    Args:
        labels: int32 [maps, rows, columns], from `label`.
        down: height of a cell, in any unit.
        across: width of a cell, in the same unit.

    Returns:
        The measurements, in this unit.
    """
    _, rows, columns = labels.shape
    count = labels.shape.num_elements() + 1
    around = tf.pad(labels, ((0, 0), (1, 1), (1, 1)))
    above, below, before, after = (
        tf.cast(other != labels, tf.float32)
        for other in (around[:, :-2, 1:-1], around[:, 2:, 1:-1], around[:, 1:-1, :-2], around[:, 1:-1, 2:])
    )
    # Computed for each image: constants of this size would take megabytes in each exported graph.
    none = tf.zeros_like(above)
    y, x = none + np.arange(rows, dtype=np.float32)[:, None], none + np.arange(columns, dtype=np.float32)
    level, upright = (
        tf.cast(place == 0, tf.float32) + tf.cast(place == last, tf.float32)
        for place, last in ((y, rows - 1), (x, columns - 1))
    )

    def cells(*values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.stack(values, axis=-1), (count - 1, len(values)))

    places = tf.reshape(labels, (-1, 1))
    sides = cells(none + 1, above + below, before + after, level, upright)
    sums = tf.tensor_scatter_nd_add(tf.zeros((count, 5)), places, sides)
    ends = tf.tensor_scatter_nd_max(tf.fill((count, 4), -1e9), places, cells(-y, y + 1, -x, x + 1))
    area, levels, uprights, level_border, upright_border = tf.unstack(sums, axis=1)
    top, bottom, left, right = tf.unstack(ends * tf.stack([down, down, across, across]), axis=1)
    return Components(
        area * down * across,
        levels * across + uprights * down,
        level_border * across + upright_border * down,
        -top,
        bottom,
        -left,
        right,
    )

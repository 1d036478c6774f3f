"""Rectangles of an image."""

from typing import NamedTuple

import tensorflow as tf


class Rectangle(NamedTuple):
    """Sides of a rectangle, or of several: float32 of any shape, in any unit."""

    top: tf.Tensor
    bottom: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor

    @property
    def height(self) -> tf.Tensor:
        """Distance from top to bottom."""
        return self.bottom - self.top

    @property
    def width(self) -> tf.Tensor:
        """Distance from left to right."""
        return self.right - self.left

    @property
    def longest(self) -> tf.Tensor:
        """The longer side."""
        return tf.maximum(self.height, self.width)

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.images import digit
from pipelines.data.images.digit import FINE, WIDTH

SIDE = 28 * FINE
redraw = tf.function(digit.redraw, input_signature=[tf.TensorSpec((SIDE, SIDE), tf.float32)])


def line(width, angle, blur=1.0, length=22.0):
    """A stroke across the middle; lengths in pixels of MNIST."""
    y, x = (np.mgrid[:SIDE, :SIDE] + 0.5 - SIDE / 2) / FINE
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    away = np.maximum(np.abs(across) - width / 2, np.abs(along) - length / 2)
    return np.clip(0.5 - away / blur, 0, 1).astype(np.float32)


@settings(deadline=None, max_examples=30)
@given(st.floats(3.6, 6), st.floats(0, np.pi))
def test_strokes_of_any_width_and_direction_are_thinned_to_that_of_a_pen_but_not_further(width, angle):
    drawn = redraw(line(width, angle))
    assert drawn.needed
    # Half of what is too much goes at least, as ends count as outline; so do the ends themselves.
    taken = width - WIDTH
    thin = drawn.ink.numpy().sum() / FINE**2 / (22 - taken / 2)
    assert WIDTH < thin < width - taken / 2 + 0.3


@settings(deadline=None, max_examples=30)
@given(st.floats(1.5, 2.5), st.floats(0, np.pi), st.floats(0.2, 1.4))
def test_strokes_of_a_pen_are_left_alone(width, angle, blur):
    assert not redraw(line(width, angle, blur)).needed


@settings(deadline=None, max_examples=30)
@given(st.floats(1.5, 6), st.floats(0, np.pi), st.floats(2.2, 4))
def test_blurred_strokes_are_left_alone(width, angle, blur):
    assert not redraw(line(width, angle, blur)).needed


def test_paper_without_ink_is_left_alone():
    drawn = redraw(np.zeros((SIDE, SIDE), np.float32))
    assert not drawn.needed
    assert not drawn.ink.numpy().any()

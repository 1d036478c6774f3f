"""Soft shadows: which light is one, and digits in it."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from pipelines.data import sources
from pipelines.data.images import shadow
from pipelines.data.images.digit import digit

SIDE, CELLS = 200, 112


@pytest.fixture(scope="module")
def inks():
    """Real digits in the middle of an image, from 0 (paper) to 1 (ink)."""
    stored = sources.load("mnist_5k", "train").images[:8, ..., 0] / 255
    return [np.pad(np.kron(one, np.ones((4, 4))), (SIDE - 4 * 28) // 2).astype(np.float32) for one in stored]


@functools.cache
def traced(function, *sides):
    return tf.function(function, input_signature=[tf.TensorSpec(sides, tf.float32)], autograph=False)


def measured(grey):
    return traced(shadow.measure, CELLS, CELLS)(resized(grey, CELLS, CELLS))


def resized(grey, height, width):
    return tf.image.resize(np.float32(grey)[..., None], (height, width), "area")[..., 0]


def is_found(grey):
    return bool(measured(grey).found)


def across(size=SIDE, angle=0.5):
    """Distance of pixels from a line through the middle, relative to the side."""
    y, x = np.mgrid[:size, :size] / size - 0.5
    return x * np.cos(angle) + y * np.sin(angle)


def shade(depth, width, **options):
    """Light from 1 to 1 - depth, which falls from 90% to 10% of the way over a width."""
    return 1 - depth / (1 + np.exp(-across(**options) / width * 4.4))


def difference(image, other):
    """Mean difference of pixels; centres of mass may round to neighbouring pixels."""
    shifts = itertools.product((-1, 0, 1), repeat=2)
    return min(np.abs(np.roll(image, shift, (0, 1)) - other).mean() for shift in shifts)


@pytest.mark.parametrize("width", [0.15, 0.4])
@pytest.mark.parametrize("depth", [0.2, 0.5])
def test_a_digit_in_a_soft_shadow_looks_as_without_it(inks, depth, width):
    near = []
    for ink in inks:
        paper = 200 * (1 - 0.8 * ink)
        assert is_found(paper * shade(depth, width))
        lit, shaded = (traced(digit, None, None)(np.float32(paper * light)) for light in (1, shade(depth, width)))
        near.append(difference(shaded.image.numpy(), lit.image.numpy()))
        np.testing.assert_allclose(shaded.boxes, lit.boxes, atol=0.02)
    # Other digits differ by some 60.
    assert np.mean(near) < 18


@pytest.mark.parametrize("angle", [0.0, 0.5, np.pi / 4])
@pytest.mark.parametrize("depth", [0.2, 0.5])
def test_an_edge_of_a_tenth_of_the_side_is_soft(inks, depth, angle):
    for ink in inks:
        assert is_found(200 * (1 - 0.8 * ink) * shade(depth, 0.1, angle=angle))


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.3])
def test_a_plane_of_light_is_no_shadow(inks, slope):
    for ink in inks:
        assert not is_found(200 * (1 - 0.8 * ink) * (1 + slope * across()))


@pytest.mark.parametrize("level", [20, 90, 130])
def test_a_table_is_no_shadow(inks, level):
    for ink in inks:
        assert not is_found(np.where(across() > 0.35, level, 200 * (1 - 0.8 * ink)))


@pytest.mark.parametrize("blur", [0.0, 0.02, 0.04, 0.08])
@pytest.mark.parametrize("paper", [30, 90])
def test_light_ink_on_dark_paper_is_no_shadow(inks, paper, blur):
    for ink in inks:
        chalk = Image.fromarray(np.uint8(255 * ink)).filter(ImageFilter.GaussianBlur(blur * SIDE))
        assert not is_found(paper + 110 * np.asarray(chalk) / 255)


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 500), (300, 2), (SIDE, SIDE)])
def test_one_colour_has_no_shadow_at_any_size(height, width, level):
    grey = np.full((height, width), level, np.float32)
    assert not is_found(grey)
    assert traced(digit, None, None)(grey).boxes.shape == (0, 4)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.15, 0.5), st.floats(0.15, 0.5), st.floats(-np.pi, np.pi), st.integers(30, 300), st.integers(30, 300))
def test_lifted_paper_is_even(depth, width, angle, height, breadth):
    light = 200 * shade(depth, width, size=300, angle=angle)
    gain, paper = measured(light).gain, resized(light, height, breadth)
    lifted = shadow.lift(paper, gain).numpy()
    assert lifted.max() - lifted.min() < 0.15 * (light.max() - light.min())

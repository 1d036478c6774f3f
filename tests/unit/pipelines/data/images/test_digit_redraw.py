import numpy as np
import onnx
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipelines.data.images import digit
from pipelines.data.images.digit import FINE, WIDTH, count_rounds, most_rounds
from pipelines.export.onnx_model import DIGITS as PACKAGED
from serving.inputs import INPUT
from serving.manifest import BOXES, RGBA
from serving.session import open_session

SIDE = 28 * FINE
redraw = tf.function(digit.redraw, input_signature=[tf.TensorSpec((SIDE, SIDE), tf.float32)])


@pytest.fixture(scope="module")
def packaged():
    """The conversion as it is installed."""
    return open_session(PACKAGED)


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


@st.composite
def uneven_light(draw):
    """Light without strokes, float32 [h, w]: constant, as a slope, as a paraboloid, or as smooth noise."""
    height, width = draw(st.integers(1, 240)), draw(st.integers(1, 240))
    y, x = np.mgrid[:height, :width] / max(height, width)
    strength, level = draw(st.floats(-250, 250)), draw(st.floats(0, 255))
    angle, wave = draw(st.floats(0, 2 * np.pi)), draw(st.floats(0.5, 12))
    slope = x * np.cos(angle) + y * np.sin(angle)
    y0, x0 = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    waves = sum(np.sin(wave * (x * a + y * b) + c) for a, b, c in random.uniform(-3, 3, (5, 3)))
    shape = draw(st.sampled_from([0 * x, slope, (x - x0) ** 2 + (y - y0) ** 2, waves / 5]))
    return np.clip(level + strength * shape, 0, 255).round().astype(np.float32)


@settings(deadline=None, max_examples=60)
@given(uneven_light())
def test_the_rounds_of_thinning_are_bounded_by_the_size_of_the_grid(light):
    """Ink without an outline would be measured as infinitely wide."""
    grid = np.asarray(Image.fromarray(light).resize((SIDE, SIDE), Image.Resampling.BICUBIC)).clip(0, 255)
    for ink in (grid / 255, 1 - grid / 255, np.ones((SIDE, SIDE), np.float32)):
        assert 0 <= count_rounds(tf.constant(ink)) <= most_rounds(SIDE) <= SIDE / 4
        assert np.isfinite(redraw(ink).ink).all()


def test_ink_without_an_outline_is_left_alone():
    drawn = redraw(np.ones((SIDE, SIDE), np.float32))
    assert not drawn.needed
    np.testing.assert_array_equal(drawn.ink, 1)


@settings(deadline=None, max_examples=60)
@given(uneven_light())
def test_uneven_light_of_any_size_is_converted_by_the_packaged_graph(packaged, light):
    grey = light.astype(np.uint8)
    rgba = np.stack([grey, grey, grey, np.full_like(grey, 255)], axis=-1)
    image, boxes = packaged.run([INPUT, BOXES], {RGBA: rgba})
    assert image.shape == (28, 28, 1)
    assert boxes.shape[1] == 4


def test_every_loop_of_the_packaged_graph_has_a_largest_number_of_rounds():
    """A graph that never ends stops the process that runs it."""
    limits = list(loop_limits(onnx.load(PACKAGED).graph, {}))
    assert len(limits) == 8
    assert max(limits) == most_rounds(SIDE)


def loop_limits(graph, constants):
    """Yields the largest number of rounds of each loop, in nested graphs too."""
    constants = {**constants, **{value.name: value for value in graph.initializer}}
    constants |= {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    for node in graph.node:
        if node.op_type == "Loop":
            yield int(onnx.numpy_helper.to_array(constants[node.input[0]]))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from loop_limits(attribute.g, constants)

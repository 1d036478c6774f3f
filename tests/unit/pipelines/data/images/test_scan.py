import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pipelines.data.images import scan
from pipelines.data.images.digit import digit
from pipelines.data.images.scan import CELLS, PARTS
from tests.digits import ten_digits

SIDE = 112
BLOCKS, SMOOTH = Image.Resampling.NEAREST, Image.Resampling.BICUBIC
fit = tf.function(scan.fit, input_signature=[tf.TensorSpec((SIDE, SIDE), tf.float32)])
redraw = tf.function(scan.redraw, input_signature=[tf.TensorSpec((CELLS, CELLS), tf.float32)])
converted = tf.function(digit, input_signature=[tf.TensorSpec((None, None), tf.float32)])


def scaled(values, side, how):
    return np.asarray(Image.fromarray(np.asarray(values, np.float32)).resize((side, side), how))


def shares():
    """Random cells with a blank corner on every side, an empty and a full cell."""

    def edged(cells):
        cells[:: CELLS - 1, :: CELLS - 1] = 0
        cells[4, 4] = 16
        return cells / 16

    return arrays(np.float32, (CELLS, CELLS), elements=st.integers(0, 16).map(float)).map(edged)


@settings(deadline=None, max_examples=30)
@given(shares(), st.sampled_from([BLOCKS, SMOOTH]), st.floats(60, 250), st.floats(60, 250))
def test_the_ink_of_cells_is_recovered_from_dark_and_light_scans(ink, how, paper, stroke):
    if abs(paper - stroke) < 10:
        return
    found = fit(scaled(paper + (stroke - paper) * ink, SIDE, how))
    assert found.found
    np.testing.assert_allclose(found.ink, ink, atol=0.01)


@pytest.mark.parametrize("cells", [7, 9, 14])
@pytest.mark.parametrize("how", [BLOCKS, SMOOTH])
def test_images_of_more_or_fewer_cells_are_no_scans(cells, how):
    assert not fit(scaled(np.random.default_rng(0).uniform(0, 255, (cells, cells)), SIDE, how)).found


def test_enlarged_digits_and_blank_paper_are_no_scans():
    assert not any(fit(scaled(255 - image, SIDE, SMOOTH)).found for image in ten_digits())
    assert not fit(np.full((SIDE, SIDE), 200, np.float32)).found


@settings(deadline=None, max_examples=30)
@given(shares())
def test_redrawing_preserves_the_amount_of_ink(ink):
    drawn = redraw(ink).numpy()
    assert drawn.shape == (CELLS * PARTS,) * 2
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert drawn.mean() == pytest.approx(ink.mean(), abs=0.04)


def test_a_straight_stroke_keeps_its_ink_and_its_place_within_a_cell():
    ink = np.zeros((CELLS, CELLS), np.float32)
    # A stroke of one and a quarter cells, a quarter of it in the left one.
    ink[:, 3:5] = 0.25, 1
    row = redraw(ink).numpy()[4 * PARTS]
    assert row.sum() / PARTS == pytest.approx(1.25, abs=0.1)
    at = (np.arange(len(row)) + 0.5) / PARTS
    assert (row * at).sum() / row.sum() == pytest.approx(4.375, abs=0.1)


@pytest.mark.parametrize("how", [BLOCKS, SMOOTH])
@pytest.mark.parametrize("side", [96, 303])
def test_scans_become_the_digit_dark_or_light(how, side):
    differences = []
    for image in ten_digits():
        ys, xs = np.nonzero(image > 60)
        box = image[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1].astype(np.float32)
        room = max(box.shape) - np.array(box.shape)
        square = np.pad(box, [(one // 2, one - one // 2) for one in room])
        coarse = scaled(scaled(square, CELLS, Image.Resampling.BOX), side, how).clip(0, 255)
        dark, light = converted(255 - coarse).image.numpy(), converted(coarse).image.numpy()
        np.testing.assert_allclose(dark, light, atol=1)
        differences.append(np.abs(dark - image).mean())
    # Without redrawing, it is more than 17.
    assert np.mean(differences) < 14


def test_wide_images_of_as_many_cells_are_no_scans():
    # With a notch: a rectangle would be a blank sheet on a table.
    inked = np.ones((4, 4), np.float32)
    inked[2:, 1:3] = 0
    cells = np.pad(inked, 2) * 200
    wide = np.asarray(Image.fromarray(255 - cells).resize((160, 80), BLOCKS))
    # As wide as it was: two to one.
    ys, xs = np.nonzero(converted(wide).image.numpy() > 60)
    assert np.ptp(xs) + 1 > 1.8 * (np.ptp(ys) + 1)

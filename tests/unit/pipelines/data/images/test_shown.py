import numpy as np
import pytest
import tensorflow as tf

from pipelines.data.images.shown import grey, shown, written


def canvas(ink, paper=None):
    """A stroke on a transparent canvas, or on paper."""
    rgba = np.zeros((9, 9, 4), np.uint8)
    if paper is not None:
        rgba[...] = (*paper, 255)
    rgba[3:6, 4] = (*ink, 255)
    return rgba


def test_transparent_parts_show_the_background():
    rgba = np.array([[[200, 100, 0, 51]]], np.uint8)
    np.testing.assert_allclose(np.ravel(shown(tf.constant(rgba))), [244, 224, 204], atol=1e-3)


def test_colours_without_transparency_are_shown_exactly():
    rgba = np.random.default_rng(0).integers(0, 256, (3, 5, 4), np.uint8)
    rgba[..., 3] = 255
    np.testing.assert_array_equal(np.stack(shown(tf.constant(rgba)), -1), rgba[..., :3])


@pytest.mark.parametrize("value", range(256))
def test_grey_of_grey_is_exact(value):
    assert grey((tf.fill((1, 1), float(value)),) * 3)[0, 0] == value


@pytest.mark.parametrize(("ink", "around"), [((0, 0, 0), 255), ((60, 0, 90), 255), ((255, 255, 255), 0)])
def test_ink_without_paper_is_told_from_what_is_around_it(ink, around):
    found = written(tf.constant(canvas(ink))).numpy()
    assert found[0, 0] == around
    assert abs(found[4, 4] - around) > 127


@pytest.mark.parametrize("paper", [(0, 0, 0), (180, 180, 180), (255, 255, 255)])
def test_paper_stays_paper(paper):
    assert written(tf.constant(canvas((90, 90, 90), paper)))[0, 0] == paper[0]


def test_nothing_at_all_is_white():
    assert (written(tf.zeros((3, 3, 4), tf.uint8)).numpy() == 255).all()

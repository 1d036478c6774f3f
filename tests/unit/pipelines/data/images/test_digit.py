import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipelines.data import sources
from pipelines.data.images.digit import digit

DIGITS = 60


@pytest.fixture(scope="module")
def normalized():
    return tf.function(digit, input_signature=[tf.TensorSpec((None, None), tf.float32)])


@pytest.fixture(scope="module")
def digits():
    """Real digits as stored by MNIST."""
    return sources.load("mnist_5k", "train").images[:DIGITS, :, :, 0].astype(np.float32)


def test_a_digit_as_stored_is_left_alone(normalized, digits):
    for image in digits:
        np.testing.assert_array_equal(normalized(image), image)


def test_dark_on_light_becomes_the_stored_digit(normalized, digits):
    same = [np.array_equal(normalized(255 - image), _stretched(image)) for image in digits]
    assert np.mean(same) >= 0.95


@pytest.mark.parametrize("factor", [2, 5, 20])
def test_a_larger_digit_becomes_the_same(normalized, digits, factor):
    # Some centres of mass are so close to a pixel boundary that they round to the other pixel.
    large = [np.kron(255 - image, np.ones((factor, factor), np.float32)) for image in digits[:40]]
    near = [np.abs(normalized(one) - image).mean() < 6 for one, image in zip(large, digits, strict=False)]
    assert np.mean(near) >= 0.9


def test_paper_may_be_grey_and_unevenly_lit(normalized, digits):
    y, x = np.mgrid[:28, :28]
    for image in digits[:20]:
        light = 150 + y - 2 * x
        np.testing.assert_allclose(normalized(light * (1 - 0.8 * image / 255)), image, atol=40)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 2), (28, 28), (300, 7)])
def test_paper_without_a_digit_is_black(normalized, size):
    assert not normalized(np.full(size, 200, np.float32)).numpy().any()


@settings(deadline=None, max_examples=30)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 60), st.integers(1, 60)),
        elements=st.integers(0, 255).map(float),
    )
)
def test_every_image_becomes_some_digit(normalized, image):
    found = normalized(image).numpy()
    assert found.shape == (28, 28)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 255
    np.testing.assert_array_equal(found, np.round(found))


def _stretched(image):
    """Scales the strongest ink to 255; in some stored digits it is 254."""
    return np.round(255 * image / image.max())

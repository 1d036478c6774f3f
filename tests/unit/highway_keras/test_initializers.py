import keras
import numpy as np
import pytest
from keras import ops

from highway_keras.initializers import caffe_xavier, fan_in_uniform, gaussian, patch_whitening
from tests.unit.highway_keras.backend import MARKS_ON_JAX

pytestmark = [pytest.mark.usefixtures("keras_initial_values"), *MARKS_ON_JAX]


@pytest.mark.parametrize("shape", [(500, 80), (3, 3, 50, 60)])
def test_caffe_xavier_is_he_normal_without_truncation(shape):
    keras.utils.set_random_seed(0)
    kernel = ops.convert_to_numpy(caffe_xavier()(shape))
    std = np.sqrt(2 / np.prod(shape[:-1]))

    np.testing.assert_allclose(kernel.std(), std, rtol=0.02)
    np.testing.assert_allclose(np.mean(np.abs(kernel) < std), 0.6827, atol=0.01)  # Gaussian, not uniform
    assert np.abs(kernel).max() > 3 * std


def test_the_deviation_of_gaussian_does_not_depend_on_the_shape():
    keras.utils.set_random_seed(0)
    kernel = ops.convert_to_numpy(gaussian(0.05)((400, 100)))

    np.testing.assert_allclose(kernel.std(), 0.05, rtol=0.02)
    assert gaussian(None).get_config() == caffe_xavier().get_config()


def test_the_limit_of_fan_in_uniform_is_one_over_the_root_of_the_fan_in():
    keras.utils.set_random_seed(0)
    kernel = ops.convert_to_numpy(fan_in_uniform()((64, 300)))

    assert 0.999 < np.abs(kernel).max() * 8 <= 1
    np.testing.assert_allclose(kernel.std(), 1 / (8 * np.sqrt(3)), rtol=0.02)  # uniform, not a Gaussian


def test_each_call_draws_new_values():
    first, second = (ops.convert_to_numpy(caffe_xavier()((4, 4))) for _ in range(2))

    assert not np.allclose(first, second)


def test_an_initializer_reloads_from_its_config():
    again = keras.initializers.deserialize(keras.initializers.serialize(caffe_xavier()))

    assert again.get_config() == caffe_xavier().get_config()


def smooth(count=200, channels=2):
    """Returns images whose neighbouring pixels are alike, as in photographs."""
    noise = np.random.default_rng(0).normal(size=(count, 12, 10, channels))
    return 3 + noise + np.roll(noise, 1, axis=1) + 0.5 * np.roll(noise, 1, axis=2) + noise[..., ::-1]


def outputs(images, kernel):
    """Returns what a convolution computes from each patch, [patches, filters]."""
    convolved = ops.conv(images.astype("float32"), kernel, padding="valid")
    return ops.convert_to_numpy(convolved).reshape(-1, kernel.shape[-1])


@pytest.mark.parametrize("scale", [1.0, 1 / 64])
def test_a_whitening_has_uncorrelated_outputs_of_variance_one(scale):
    images = scale * smooth()
    kernel = patch_whitening(images, np.zeros((2, 3, 2, 24), "float32"), epsilon=1e-9)

    y = outputs(images, kernel)[:, ::2]
    np.testing.assert_allclose(np.cov(y.T), np.eye(12), atol=2e-3)
    assert (kernel.dtype, kernel.shape) == (np.float32, (2, 3, 2, 24))


def test_each_filter_of_a_whitening_is_followed_by_its_negative():
    kernel = patch_whitening(smooth(), np.zeros((3, 3, 2, 36), "float32"))

    np.testing.assert_array_equal(kernel[..., ::2], -kernel[..., 1::2])
    assert (kernel[..., ::2].max(axis=(0, 1, 2)) == np.abs(kernel[..., ::2]).max(axis=(0, 1, 2))).all()


def test_a_whitening_starts_with_the_largest_eigenvalues_and_leaves_the_filters_that_are_too_many():
    before = np.random.default_rng(1).normal(size=(2, 2, 2, 21)).astype("float32")
    whole = patch_whitening(smooth(), before)

    np.testing.assert_array_equal(patch_whitening(smooth(), before[..., :5]), whole[..., :5])
    np.testing.assert_array_equal(whole[..., 16:], before[..., 16:])
    # A large eigenvalue makes a short filter.
    lengths = np.sum(whole[..., :16:2] ** 2, axis=(0, 1, 2))
    assert (np.diff(lengths) > 0).all()
    assert not np.shares_memory(whole, before)


def test_epsilon_is_a_share_of_the_mean_variance():
    small, large = (patch_whitening(scale * smooth(), np.zeros((2, 2, 2, 16)), 0.1) for scale in (1, 100))

    np.testing.assert_allclose(small, 100 * large, rtol=1e-5)
    deviations = outputs(smooth(), small)[:, ::2].std(axis=0)
    assert deviations[0] > 0.9 > deviations[-1]


def test_large_images_are_sampled(monkeypatch):
    monkeypatch.setattr("highway_keras.initializers.PATCHES", 5000)
    images = smooth(1000, channels=1)
    found = patch_whitening(images, np.zeros((2, 2, 1, 8)))
    monkeypatch.undo()

    assert not np.array_equal(found, patch_whitening(images, np.zeros((2, 2, 1, 8))))
    np.testing.assert_allclose(np.cov(outputs(images, found)[:, ::2].T), np.eye(4), atol=0.1)


def test_many_small_images_are_sampled_at_every_place(monkeypatch):
    monkeypatch.setattr("highway_keras.initializers.PATCHES", 5000)
    images = np.zeros((5000, 8, 8, 1), "float32")
    images[:, 3:, 3:] = np.random.default_rng(0).normal(size=(5000, 5, 5, 1))
    found = patch_whitening(images, np.zeros((3, 3, 1, 18)))

    np.testing.assert_allclose(np.cov(outputs(images, found)[:, ::2].T), np.eye(9), atol=0.1)


@pytest.mark.parametrize("shape", [(5, 12, 10, 3), (5, 1, 10, 2), (5, 12, 2, 2), (12, 10, 2), (0, 12, 10, 2)])
def test_images_that_do_not_fit_the_kernel_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must be \[n, height, width, 2\].*Received: images\.shape="):
        patch_whitening(np.ones(shape), np.zeros((2, 3, 2, 4)))


def test_images_of_one_colour_are_refused():
    with pytest.raises(ValueError, match="must differ from place to place"):
        patch_whitening(np.full((50, 12, 10, 2), 0.3), np.zeros((2, 3, 2, 4)))

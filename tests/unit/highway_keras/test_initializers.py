import keras
import numpy as np
import pytest
from keras import ops

from highway_keras.initializers import caffe_xavier, fan_in_uniform, gaussian
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

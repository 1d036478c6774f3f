import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway_keras.models.resize import Resize
from tests.unit.highway_keras.backend import array, few_examples


@few_examples
@given(given_size=st.integers(1, 9), size=st.integers(1, 9), rank=st.integers(2, 4))
def test_inputs_grow_by_zeros_and_shrink_by_evenly_spaced_subsampling(given_size, size, rank):
    shape = (*(2, 3, 4)[: rank - 1], given_size)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    layer = Resize(size, mode="zero_pad" if size >= given_size else "subsample")
    y = array(layer(x))

    assert y.shape == layer.compute_output_shape(shape) == (*shape[:-1], size)
    if size >= given_size:
        np.testing.assert_array_equal(y[..., :given_size], x)
        np.testing.assert_array_equal(y[..., given_size:], 0)
    else:
        picks = [x[..., unit * given_size // size] for unit in range(size)]
        np.testing.assert_array_equal(y, np.stack(picks, axis=-1))
    assert not layer.weights


def test_subsampling_by_an_integer_is_a_stride():
    x = np.arange(12, dtype="float32").reshape(1, 12)

    np.testing.assert_array_equal(array(Resize(4, mode="subsample")(x)), x[:, ::3])


@pytest.mark.parametrize(
    ("mode", "size", "verb"), [("zero_pad", 3, "only grow .* use 'subsample'"), ("subsample", 5, "only shrink .* use")]
)
def test_the_wrong_direction_is_rejected_with_both_shapes(mode, size, verb):
    shapes = rf"input shape \(2, 7, 4\), output shape \(2, 7, {size}\)"
    with pytest.raises(ValueError, match=f"{verb}.*{shapes}"):
        Resize(size, mode=mode)(np.zeros((2, 7, 4), "float32"))


def test_invalid_sizes_and_modes_are_rejected():
    with pytest.raises(ValueError, match="Received: size=0"):
        Resize(0)
    with pytest.raises(ValueError, match=r"'zero_pad', 'subsample'. Received: mode='plain'"):
        Resize(4, mode="plain")
    with pytest.raises(ValueError, match=r"must be defined. Received: input shape \(2, None\)"):
        Resize(4).compute_output_shape((2, None))


def test_a_layer_reloads_from_its_config():
    layer = Resize(4, mode="subsample", name="resize_2")

    assert Resize.from_config(layer.get_config()).get_config() == layer.get_config()

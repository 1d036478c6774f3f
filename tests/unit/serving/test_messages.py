import numpy as np
import pytest

from serving.tf_serving import messages


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.arange(6, dtype="uint8").reshape(1, 2, 3, 1),
        np.arange(3),
        np.zeros((0, 4), "float32"),
        np.array([b"a", b"", b"\xff\0"], object),
        np.array([[b"a"], [b"b"]], object),
    ],
)
def test_an_array_goes_there_and_back(array):
    sent = messages.tensor(array).SerializeToString()
    back = messages.array(messages.TensorProto.FromString(sent))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_values_in_lists_are_read_too():
    listed = messages.TensorProto(dtype=1, float_val=[0.5, 0.25])
    listed.tensor_shape.dim.add(size=2)
    np.testing.assert_array_equal(messages.array(listed), np.float32([0.5, 0.25]))
    repeated = messages.TensorProto(dtype=9, int64_val=[7])
    repeated.tensor_shape.dim.add(size=3)
    np.testing.assert_array_equal(messages.array(repeated), [7, 7, 7])


def test_other_types_are_refused():
    with pytest.raises(KeyError):
        messages.tensor(np.zeros(2, "complex64"))

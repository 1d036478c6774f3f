import numpy as np
import pytest

from serving.messages import tf_serving as messages


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
def test_an_array_survives_a_round_trip(array):
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
    with pytest.raises(KeyError):
        messages.array(messages.TensorProto(dtype=8))


def test_the_real_messages_are_the_same():
    from tensorflow_serving.apis import predict_pb2

    images = np.arange(12, dtype="uint8").reshape(1, 4, 3, 1)
    ours = messages.PredictRequest(output_filter=["probabilities"])
    ours.model_spec.name, ours.model_spec.signature_name, ours.model_spec.version.value = "digits", "serving_default", 3
    ours.inputs["image"].CopyFrom(messages.tensor(images))
    real = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    assert (real.model_spec.name, real.model_spec.version.value) == ("digits", 3)
    assert real.model_spec.signature_name == "serving_default"
    assert list(real.output_filter) == ["probabilities"]
    assert real.inputs["image"].tensor_content == images.tobytes()
    back = messages.PredictRequest.FromString(real.SerializeToString())
    np.testing.assert_array_equal(messages.array(back.inputs["image"]), images)


def test_states_have_the_names_of_the_real_ones():
    from tensorflow_serving.apis import get_model_status_pb2

    real = get_model_status_pb2.ModelVersionStatus.State
    assert {number: name for name, number in real.items()} == messages.STATES

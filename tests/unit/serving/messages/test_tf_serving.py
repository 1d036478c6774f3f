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


@pytest.mark.parametrize(
    ("datatype", "field", "fits", "wrong"),
    [
        (4, "int_val", (0, 255), (256, -1, 300)),
        (6, "int_val", (-128, 127), (128, -129)),
        (17, "int_val", (0, 65_535), (65_536, -1)),
        (5, "int_val", (-32_768, 32_767), (32_768,)),
        (19, "half_val", (0, 0x3C00), (0x13C00, -1)),
    ],
)
def test_listed_values_beyond_their_type_are_refused(datatype, field, fits, wrong):
    def read(value):
        listed = messages.TensorProto(dtype=datatype, **{field: [value]})
        listed.tensor_shape.dim.add(size=1)
        return messages.array(listed)[0]

    assert [read(value) for value in fits] == ([0, 1] if field == "half_val" else list(fits))
    for value in wrong:
        with pytest.raises(OverflowError, match="values that are not of type"):
            read(value)


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


def test_types_have_the_names_of_the_real_ones():
    from tensorflow.core.framework import types_pb2

    real = {number: name for name, number in types_pb2.DataType.items()}
    assert {number: real[number] for number in messages.DATA_TYPES} == messages.DATA_TYPES


def test_states_have_the_names_of_the_real_ones():
    from tensorflow_serving.apis import get_model_status_pb2

    real = get_model_status_pb2.ModelVersionStatus.State
    assert {number: name for name, number in real.items()} == messages.STATES

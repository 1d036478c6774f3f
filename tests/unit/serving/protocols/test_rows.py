"""Rows of a table as messages of gRPC; over HTTP they are tested with the whole app."""

import numpy as np
import pytest

from serving.errors import LimitError, RequestError
from serving.manifest import Manifest
from serving.messages import tf_serving as messages
from serving.messages.open_inference import CLASSES
from serving.protocols import open_inference_grpc, tf_predict
from tests import table_model

NUMBERS = np.float32([[4, 10, 1], [2, np.nan, -1]])
OUTPUTS = {"value": np.float32([[300], [200]]), "gate_means": np.zeros((2, 2), np.float32)}


@pytest.fixture
def manifest(tmp_path):
    file = {"size": 1, "sha256": "0" * 64}
    content = table_model.content(tmp_path / "houses" / "1", regression=True)
    return Manifest.model_validate({**content, "files": {"model.onnx": file}})


def infer(**changes):
    tensor = {"name": "row", "datatype": "FP32", "shape": [2, 3]} | changes
    return CLASSES["ModelInferRequest"](model_name="houses", inputs=[tensor])


def test_rows_in_a_message_of_the_open_inference_protocol(manifest):
    listed = infer(contents={"fp32_contents": NUMBERS.ravel()})
    raw = infer(datatype="FP64")
    raw.raw_input_contents.append(NUMBERS.astype("<f8").tobytes())
    for message in (listed, raw):
        parsed = open_inference_grpc.parse(message.SerializeToString(), manifest)
        np.testing.assert_array_equal(parsed.request.images, NUMBERS)
    answer = open_inference_grpc.format_response(OUTPUTS, manifest, parsed)
    found = CLASSES["ModelInferResponse"].FromString(answer)
    assert next((one.name, one.datatype, list(one.shape)) for one in found.outputs) == ("value", "FP32", [2, 1])
    assert np.frombuffer(found.raw_output_contents[0], np.float32).tolist() == [300, 200]


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"name": "image"}, RequestError, "there is no input 'image'. Give 'row'"),
        ({"shape": [300, 3]}, LimitError, "300 rows in one request"),
        ({"shape": [2, 4]}, RequestError, r"the row has the shape \(2, 4\)"),
    ],
)
def test_other_messages_of_the_open_inference_protocol_are_refused(manifest, changes, kind, said):
    with pytest.raises(kind, match=said):
        open_inference_grpc.parse(infer(**changes).SerializeToString(), manifest)


def test_shared_memory_is_refused(manifest):
    message = infer()
    message.inputs[0].parameters["shared_memory_region"].string_param = "region"
    with pytest.raises(RequestError, match="'row' is in shared memory, which this endpoint does not use"):
        open_inference_grpc.parse(message.SerializeToString(), manifest)


def predict(array, name="row"):
    request = messages.PredictRequest()
    request.inputs[name].CopyFrom(messages.tensor(array))
    return request.SerializeToString()


def test_rows_in_a_message_of_tf_serving(manifest):
    for given in (NUMBERS, NUMBERS.astype(np.float64)):
        parsed = tf_predict.parse(predict(given), manifest)
        np.testing.assert_array_equal(parsed.request.images, NUMBERS)
    found = messages.PredictResponse.FromString(tf_predict.format_response(OUTPUTS, manifest, parsed))
    assert messages.array(found.outputs["value"]).tolist() == [[300], [200]]
    described = messages.GetModelMetadataResponse.FromString(tf_predict.metadata(manifest))
    signatures = messages.SignatureDefMap.FromString(described.metadata["signature_def"].value).signature_def
    assert list(signatures) == ["serving_default"]
    assert [dim.size for dim in signatures["serving_default"].inputs["row"].tensor_shape.dim] == [-1, 3]


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (predict(NUMBERS, "image"), RequestError, "has the one input 'row'"),
        (predict(np.zeros((300, 3), np.float32)), LimitError, "300 rows in one request"),
        (predict(np.array([[b"a", b"b", b"c"]], object)), RequestError, "Expected DT_FLOAT, or another type of number"),
        (predict(np.float32([[0, 0, 9]])), RequestError, "row 1: city must be the index"),
    ],
)
def test_other_messages_of_tf_serving_are_refused(manifest, body, kind, said):
    with pytest.raises(kind, match=said):
        tf_predict.parse(body, manifest)

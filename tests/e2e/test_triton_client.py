"""The published clients of Triton, for HTTP and gRPC, against a running endpoint."""

import io

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

from tests.digits import ten_digits
from tests.endpoint import Endpoint


@pytest.fixture(scope="module")
def endpoint(repository, tmp_path_factory):
    with Endpoint(repository, tmp_path_factory.mktemp("log") / "log", "--grpc-port", "0") as started:
        yield started


@pytest.fixture
def client(endpoint):
    with triton.InferenceServerClient(endpoint.url.removeprefix("http://")) as made:
        yield made


@pytest.fixture
def grpc_client(endpoint):
    with triton_grpc.InferenceServerClient(endpoint.grpc) as made:
        yield made


def pixels(binary):
    images = ten_digits()[..., None]
    tensor = triton.InferInput("image", images.shape, "UINT8")
    tensor.set_data_from_numpy(images, binary_data=binary)
    return tensor


def grpc_pixels(dtype="UINT8"):
    images = ten_digits()[..., None]
    tensor = triton_grpc.InferInput("image", images.shape, dtype)
    tensor.set_data_from_numpy(images.astype({"UINT8": "uint8", "FP32": "float32"}[dtype]))
    return tensor


@pytest.fixture(scope="module")
def expected(repository):
    from serving.model import open_model

    return open_model(repository / "digits").predict(ten_digits()[..., None])


def test_health_and_metadata_are_reported(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("nothing")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    found = client.get_model_metadata("digits", "1")
    assert found["inputs"][0] == {"name": "image", "datatype": "UINT8", "shape": [-1, 28, 28, 1]}
    assert {one["name"]: one["datatype"] for one in found["outputs"]} == {
        "probabilities": "FP32", "class_id": "INT64", "label": "BYTES", "gate_means": "FP32",
    }  # fmt: skip


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
def test_tensors_pass_as_binary_and_as_json(client, expected, binary_input, binary_output):
    names = ("probabilities", "class_id", "label", "gate_means")
    asked = [triton.InferRequestedOutput(name, binary_data=binary_output) for name in names]
    answer = client.infer("digits", [pixels(binary_input)], outputs=asked, request_id="seven")
    assert answer.get_response()["id"] == "seven"
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)
    np.testing.assert_allclose(answer.as_numpy("gate_means"), expected["gate_means"], atol=1e-6)
    classes = expected["probabilities"].argmax(-1)
    assert answer.as_numpy("class_id").tolist() == classes.tolist()
    texts = [text.decode() if isinstance(text, bytes) else text for text in answer.as_numpy("label")]
    assert texts == [str(number) for number in classes]


def test_all_outputs_are_returned_by_default(client, expected):
    answer = client.infer("digits", [pixels(True)], model_version="1")
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)
    assert answer.as_numpy("label").tolist() == [str(number).encode() for number in answer.as_numpy("class_id")]


def test_image_files_are_classified(client, expected):
    files = []
    for digit in ten_digits():
        file = io.BytesIO()
        Image.fromarray(digit).save(file, "PNG")
        files.append(file.getvalue())
    tensor = triton.InferInput("image_bytes", [len(files)], "BYTES")
    tensor.set_data_from_numpy(np.array(files, object), binary_data=True)
    answer = client.infer("digits", [tensor])
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)


def test_concurrent_requests_are_answered(client, expected):
    asked = [client.async_infer("digits", [pixels(True)]) for _ in range(20)]
    for one in asked:
        np.testing.assert_allclose(one.get_result().as_numpy("probabilities"), expected["probabilities"], atol=1e-6)


def test_refused_requests_raise_an_error_of_the_client(client):
    for name, shape, said in (
        ("nothing", [1, 28, 28, 1], "no model 'nothing'"),
        ("digits", [1, 4, 4, 1], "takes images"),
    ):
        tensor = triton.InferInput("image", shape, "UINT8")
        tensor.set_data_from_numpy(np.zeros(shape, np.uint8), binary_data=True)
        with pytest.raises(InferenceServerException, match=said):
            client.infer(name, [tensor])


def test_configuration_index_and_statistics(client, grpc_client):
    config, found = client.get_model_config("digits"), grpc_client.get_model_config("digits").config
    assert (config["input"][0]["dims"], config["max_batch_size"]) == ([28, 28, 1], 256)
    assert (found.input[0].dims, found.max_batch_size, found.output[0].label_filename) == (
        [28, 28, 1],
        256,
        "labels.txt",
    )
    entry = {"name": "digits", "version": "1", "state": "READY", "reason": ""}
    assert client.get_model_repository_index() == [entry]
    assert grpc_client.get_model_repository_index(as_json=True)["models"][0].items() <= entry.items()
    before = client.get_inference_statistics("digits")["model_stats"][0]
    client.infer("digits", [pixels(True)])
    grpc_client.infer("digits", [grpc_pixels()])
    after = grpc_client.get_inference_statistics("digits").model_stats[0]
    assert after.inference_count == before["inference_count"] + 2 * len(ten_digits())
    assert after.inference_stats.success.count == before["inference_stats"]["success"]["count"] + 2


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_bodies(client, grpc_client, expected, coding):
    answer = client.infer(
        "digits", [pixels(True)], request_compression_algorithm=coding, response_compression_algorithm=coding
    )
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)
    answer = grpc_client.infer("digits", [grpc_pixels()], compression_algorithm=coding)
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)


def test_classes_as_strings(client, grpc_client, expected):
    row, texts = expected["probabilities"][0], []
    for one, kind, given in ((client, triton, pixels(True)), (grpc_client, triton_grpc, grpc_pixels())):
        asked = kind.InferRequestedOutput("probabilities", class_count=3)
        texts.append(one.infer("digits", [given], outputs=[asked]).as_numpy("probabilities"))
    assert texts[0].shape == (len(ten_digits()), 3)
    assert texts[0].tolist() == texts[1].tolist()
    value, index, label = texts[0][0, 0].decode().split(":")
    assert (int(index), label, float(value)) == (row.argmax(), str(row.argmax()), pytest.approx(row.max(), abs=1e-6))


@pytest.mark.parametrize("dtype", ["UINT8", "FP32"])
def test_tensors_pass_over_grpc(grpc_client, expected, dtype):
    assert grpc_client.is_server_ready()
    assert grpc_client.is_model_ready("digits")
    assert not grpc_client.is_model_ready("nothing")
    answer = grpc_client.infer("digits", [grpc_pixels(dtype)], request_id="seven")
    assert answer.get_response().id == "seven"
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected["probabilities"], atol=1e-6)
    assert answer.as_numpy("label").tolist() == [str(number).encode() for number in answer.as_numpy("class_id")]
    with pytest.raises(InferenceServerException, match="no model 'nothing'"):
        grpc_client.infer("nothing", [grpc_pixels()])

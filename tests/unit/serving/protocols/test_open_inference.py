import base64
import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from serving.errors import LimitError, RequestError
from serving.manifest import Manifest
from serving.protocols import open_inference

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3, 1)
CHANNELS_FIRST = r"nested as \[2, 1, 4, 3\], and the shape is \[2, 4, 3, 1\]. Nest it as the shape is, or send it flat"
OUTPUTS = {
    "probabilities": np.float32([[0.25, 0.75], [1, 0]]),
    "class_id": np.array([1, 0]),
    "label": ["b", "aé"],
}


@pytest.fixture
def manifest(content):
    file = {"size": 1, "sha256": "0" * 64}
    content["outputs"]["label"] = {"dtype": "string", "shape": [None]}
    return Manifest.model_validate({**content, "files": {"model.onnx": file, "labels.txt": file}})


def parse(manifest, given, behind=b""):
    head = json.dumps(given).encode()
    return open_inference.parse(head + behind, str(len(head)) if behind else None, manifest)


def image(**changes):
    return {"name": "image", "datatype": "UINT8", "shape": [2, 4, 3, 1], "data": PIXELS.ravel().tolist()} | changes


def classified(name="probabilities", count=1, **parameters):
    return {"name": name, "parameters": {"classification": count, **parameters}}


def binary(size=24, **changes):
    given = image(parameters={"binary_data_size": size}, **changes)
    del given["data"]
    return given


@pytest.mark.parametrize("data", [PIXELS.ravel().tolist(), PIXELS.tolist()])
def test_pixels_in_json(manifest, data):
    found = parse(manifest, {"id": "7", "inputs": [image(data=data)]})
    np.testing.assert_array_equal(found.request.images, PIXELS)
    assert (found.id, found.outputs, found.binary) == ("7", None, False)


def test_pixels_after_the_json(manifest):
    given = {"inputs": [binary()], "parameters": {"binary_data_output": True}}
    found = parse(manifest, given, PIXELS.tobytes())
    np.testing.assert_array_equal(found.request.images, PIXELS)
    assert found.binary


def test_the_form_of_all_outputs_applies_to_listed_ones_that_do_not_state_their_own(manifest):
    asked = [{"name": "label"}, {"name": "class_id", "parameters": {"binary_data": False}}]
    given = {"inputs": [image()], "outputs": asked, "parameters": {"binary_data_output": True}}
    found = parse(manifest, given).outputs
    assert {name: one.binary for name, one in found.items()} == {"label": True, "class_id": False}


def test_files(manifest):
    texts = [base64.b64encode(file).decode() for file in (b"one", b"three")]
    given = {"name": "image_bytes", "datatype": "BYTES", "shape": [2], "data": texts}
    assert parse(manifest, {"inputs": [given]}).request.files == [b"one", b"three"]
    for data in (texts, [[text] for text in texts]):
        nested = {**given, "shape": [2, 1], "data": data}
        assert parse(manifest, {"inputs": [nested]}).request.files == [b"one", b"three"]
    behind = b"".join(struct.pack("<I", len(file)) + file for file in (b"one", b"three"))
    given = {"name": "image_bytes", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(behind)}}
    assert parse(manifest, {"inputs": [given]}, behind).request.files == [b"one", b"three"]


def strings(count, shape):
    parameters = {"binary_data_size": 4 * count}
    return {"name": "image_bytes", "datatype": "BYTES", "shape": shape, "parameters": parameters}


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (strings(3, [2]), RequestError, "more strings than the shape, which has 2"),
        (strings(3, []), RequestError, "more strings than the shape, which has 0"),
        (strings(300, [300]), LimitError, "300 images in one request are more than the limit of 256"),
        (binary(24 * 300, shape=[300, 4, 3, 1], datatype="FP16"), LimitError, "300 images"),
    ],
)
def test_tensors_are_not_read_beyond_their_shape_and_the_limit(manifest, monkeypatch, given, error, said):
    read = []
    monkeypatch.setattr(open_inference, "raw_values", lambda *_: read.append("pixels"))
    monkeypatch.setattr(open_inference, "struct", SimpleNamespace(unpack_from=lambda *_: (read.append("string") or 0,)))
    with pytest.raises(error, match=said):
        parse(manifest, {"inputs": [given]}, bytes(given["parameters"]["binary_data_size"]))
    # Reading all of them would block the event loop for seconds if they were millions.
    assert len(read) <= 2


def test_no_images_at_all(manifest):
    assert parse(manifest, {"inputs": [image(shape=[0, 4, 3, 1], data=[])]}).request.images.shape == (0, 4, 3, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], '"inputs" must be a list of one input'),
        ({"inputs": []}, "list of one input"),
        ({"inputs": [image(), image()]}, "list of one input"),
        ({"inputs": [image(name="picture")]}, "no input 'picture'"),
        ({"inputs": [image(datatype="BF16")]}, "'image' must have the datatype UINT8, or .*FP32.* Received: 'BF16'"),
        ({"inputs": [image(datatype=["UINT8"])]}, r"'image' must have .* Received: \['UINT8'\]"),
        ({"inputs": [image(name="image_bytes")]}, "'image_bytes' must have the datatype BYTES. Received: 'UINT8'"),
        ({"inputs": [image(shape=None)]}, "must have a shape"),
        ({"inputs": [image(shape=[-2, 4, 3, 1])]}, "must have a shape"),
        ({"inputs": [image(shape=[True, 4, 3, 1])]}, "must have a shape"),
        ({"inputs": [image(shape=[2, 3, 4, 1])]}, r"takes images of \(batch, 4, 3, 1\)"),
        ({"inputs": [image(data=[1, 2])]}, "2 values, the shape .* needs 24"),
        ({"inputs": [image(data="text")]}, "list of numbers"),
        ({"inputs": [image(data=None)]}, "list of numbers|values"),
        ({"inputs": [image(data=[True] * 24)]}, "list of numbers"),
        ({"inputs": [image(data=["1"] * 24)]}, "list of numbers"),
        ({"inputs": [image(data=[[1], [1, 2]])]}, "list of numbers"),
        ({"inputs": [image(data=PIXELS.transpose(0, 3, 1, 2).tolist())]}, CHANNELS_FIRST),
        (
            {"inputs": [image(data=PIXELS.reshape(2, 12).tolist())]},
            r"nested as \[2, 12\], and the shape is \[2, 4, 3, 1\]",
        ),
        ({"inputs": [image(data=[PIXELS.ravel().tolist()])]}, r"nested as \[1, 24\], and the shape is \[2, 4, 3, 1\]"),
        ({"inputs": [image(shape=[0, 4, 3, 1], data=[[]])]}, r"nested as \[1, 0\], and the shape is \[0, 4, 3, 1\]"),
        ({"inputs": [image(data=7)]}, "list of numbers"),
        ({"inputs": [image(data=[256] * 24)]}, "from 0 to 255"),
        ({"inputs": [image(data=[0.5] * 24)]}, "whole numbers"),
        ({"inputs": [image(shape=[2**62, 4, 3, 1])]}, "24 values"),
        ({"inputs": [image()], "id": "1" * 1025}, "1,025 characters, more than the limit of 1,024"),
        ({"inputs": [image()], "id": 7}, "the id must be a string. Received: 7"),
        ({"inputs": [image()], "parameters": {"binary_data_output": "x"}}, "must be true or false. Received: 'x'"),
        (
            {"inputs": [image()], "outputs": [{"name": "label", "parameters": {"binary_data": 1}}]},
            '"binary_data" must be',
        ),
        ({"inputs": [binary()]}, "binary_data_size is 24, and 0 bytes follow"),
        ({"inputs": [binary() | {"parameters": {"binary_data_size": "24"}}]}, "a whole number. Received: '24'"),
        ({"inputs": [image(parameters={"binary_data_size": 0})]}, '"data" and binary_data_size. Send one of them'),
        ({"inputs": [image()], "outputs": [{"name": "other"}]}, "no output 'other'"),
        ({"inputs": [image()], "outputs": "label"}, '"outputs" must be a list'),
        ({"inputs": [image()], "outputs": [classified(count="3")]}, "a number of classes. Received: '3'"),
        ({"inputs": [image()], "outputs": [classified(count=True)]}, "a number of classes. Received: True"),
        ({"inputs": [image()], "outputs": [classified("label", 3)]}, "\"classification\" does not apply to 'label'"),
        ({"inputs": [{"name": "image_bytes", "datatype": "BYTES", "shape": [3], "data": []}]}, "0 files"),
        ({"inputs": [{"name": "image_bytes", "datatype": "BYTES", "shape": [1], "data": [3]}]}, "base64"),
        (
            {"inputs": [{"name": "image_bytes", "datatype": "BYTES", "shape": [1], "data": ["seven.jpg"]}]},
            "^\"data\" of 'image_bytes' is not base64",
        ),
        (
            {"inputs": [{"name": "image_bytes", "datatype": "BYTES", "shape": [1], "data": [["eA=="]]}]},
            "nested as the shape is",
        ),
    ],
)
def test_invalid_requests_are_refused(manifest, given, said):
    with pytest.raises(RequestError, match=said):
        parse(manifest, given)


@pytest.mark.parametrize("datatype", open_inference.NUMERIC)
def test_pixels_of_any_type_are_cast(manifest, datatype):
    values = PIXELS.astype(open_inference.NUMERIC[datatype])
    given = binary(values.nbytes, datatype=datatype)
    found = parse(manifest, {"inputs": [given]}, values.tobytes()).request.images
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, PIXELS)
    found = parse(manifest, {"inputs": [image(datatype=datatype, data=values.tolist())]}).request.images
    np.testing.assert_array_equal(found, PIXELS)


@pytest.mark.parametrize("wrong", [-1, 256, 0.5, np.nan, np.inf])
def test_pixels_that_are_not_whole_are_refused(manifest, wrong):
    values = PIXELS.astype("<f4")
    values[1, 2, 0] = wrong
    with pytest.raises(RequestError, match="pixels must be"):
        parse(manifest, {"inputs": [binary(values.nbytes, datatype="FP32")]}, values.tobytes())


def test_scaled_pixels_are_recognized(manifest):
    values = (PIXELS / 255).astype("<f4")
    with pytest.raises(RequestError, match="scaled to 1: multiply them by 255"):
        parse(manifest, {"inputs": [binary(values.nbytes, datatype="FP32")]}, values.tobytes())


@pytest.mark.parametrize("as_bytes", [False, True])
def test_classification(manifest, as_bytes):
    asked = [classified(count=3, binary_data=as_bytes)]
    infer = parse(manifest, {"inputs": [image()], "outputs": asked})
    probabilities = np.float32([[0.25, 0.5, 0.125, 0.125], [0, 0, 0, 1]])
    body, length = open_inference.format_response({"probabilities": probabilities}, manifest, infer)
    (output,) = json.loads(body[:length])["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 3])
    expected = ["0.500000:1:one", "0.250000:0:zero", "0.125000:2:two"]
    expected += ["1.000000:3:three", "0.000000:0:zero", "0.000000:1:one"]
    found = [file.decode() for file in open_inference.raw_files(body[length:])] if as_bytes else output["data"]
    assert found == expected


def test_bytes_after_the_json_must_fit(manifest):
    with pytest.raises(RequestError, match="24 bytes follow the JSON, and input 'image' has no binary_data_size"):
        parse(manifest, {"inputs": [image()]}, bytes(24))
    with pytest.raises(RequestError, match="23 bytes follow"):
        parse(manifest, {"inputs": [binary()]}, bytes(23))
    with pytest.raises(RequestError, match=r"the shape \[2, 4, 3, 1\] in UINT8 needs 24"):
        parse(manifest, {"inputs": [binary(23)]}, bytes(23))
    given = {"name": "image_bytes", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}
    with pytest.raises(RequestError, match="exceeds the data"):
        parse(manifest, {"inputs": [given]}, struct.pack("<I", 3) + b"ab")


@pytest.mark.parametrize("header", ["-1", "x", "9999", ""])
def test_a_wrong_header_is_refused(manifest, header):
    with pytest.raises(RequestError, match="Inference-Header-Content-Length"):
        open_inference.parse(b"{}", header, manifest)


def test_answers_in_json(manifest):
    infer = parse(manifest, {"id": "7", "inputs": [image()]})
    body, length = open_inference.format_response(OUTPUTS, manifest, infer)
    assert length is None
    assert json.loads(body) == {
        "id": "7",
        "model_name": "tiny",
        "model_version": "1",
        "outputs": [
            {"name": "probabilities", "datatype": "FP32", "shape": [2, 2], "data": [0.25, 0.75, 1, 0]},
            {"name": "class_id", "datatype": "INT64", "shape": [2], "data": [1, 0]},
            {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["b", "aé"]},
        ],
    }


def test_answers_after_the_json(manifest):
    asked = [{"name": "label", "parameters": {"binary_data": True}}, {"name": "class_id"}]
    body, length = open_inference.format_response(
        OUTPUTS, manifest, parse(manifest, {"inputs": [image()], "outputs": asked})
    )
    head = json.loads(body[:length])
    texts = struct.pack("<I", 1) + b"b" + struct.pack("<I", 3) + "aé".encode()
    assert head["outputs"] == [
        {"name": "label", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(texts)}},
        {"name": "class_id", "datatype": "INT64", "shape": [2], "data": [1, 0]},
    ]
    assert body[length:] == texts


def test_metadata(manifest):
    found = open_inference.metadata(manifest, "onnxruntime_onnx", [1, 3])
    assert (found["name"], found["versions"]) == ("tiny", ["1", "3"])
    assert found["inputs"][0] == {"name": "image", "datatype": "UINT8", "shape": [-1, 4, 3, 1]}
    assert {"name": "label", "datatype": "BYTES", "shape": [-1]} in found["outputs"]


@pytest.mark.parametrize("of", ["inputs", "outputs"])
def test_shared_memory_is_refused(manifest, of):
    shared = {"shared_memory_region": "region", "shared_memory_byte_size": 24}
    asked = {"inputs": [image()], "outputs": [{"name": "probabilities"}]}
    asked[of][0]["parameters"] = shared
    with pytest.raises(RequestError, match="is in shared memory, which this endpoint does not use"):
        parse(manifest, asked)

import base64
import json
import tracemalloc

import numpy as np
import pytest

from serving.errors import LimitError, RequestError
from serving.manifest import Manifest
from serving.protocols import tf_rest

LISTS = [[[[row * 3 + column] for column in range(3)] for row in range(4)]] * 2
PIXELS = np.array(LISTS, np.uint8)
FILE = {"b64": base64.b64encode(b"an image").decode()}


@pytest.fixture
def manifest(content):
    return Manifest.model_validate({**content, "files": {name: _file() for name in ("model.onnx", "labels.txt")}})


def _file():
    return {"size": 1, "sha256": "0" * 64}


def parse(manifest, **body):
    return tf_rest.parse(json.dumps(body).encode(), manifest)


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({"instances": LISTS}, True),
        ({"instances": [{"image": one} for one in LISTS]}, True),
        ({"inputs": LISTS}, False),
        ({"inputs": {"image": LISTS}}, False),
        ({"inputs": {"image": LISTS}, "signature_name": "serving_default"}, False),
    ],
)
def test_pixels_in_rows_and_columns(manifest, body, rows):
    found = parse(manifest, **body)
    np.testing.assert_array_equal(found.request.images, PIXELS)
    assert found.request.images.dtype == np.uint8
    assert found.rows is rows


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [FILE, FILE]},
        {"instances": [{"image_bytes": FILE}] * 2},
        {"inputs": [FILE, FILE]},
        {"inputs": {"image_bytes": [FILE, FILE]}},
    ],
)
def test_files(manifest, body):
    found = parse(manifest, signature_name="serving_bytes", **body)
    assert found.request.files == [b"an image"] * 2
    assert found.request.images is None


def test_json_may_have_as_many_values_and_brackets_as_its_images(manifest):
    count = 3000
    listed = json.dumps({"instances": [{"image": one} for one in LISTS] * (count // 2)}).encode()
    assert len(tf_rest.parse(listed, manifest, count).request.images) == count
    # Each object takes 200 bytes of memory.
    with pytest.raises(LimitError, match="far more values than 3000 images"):
        tf_rest.parse(b'{"instances":[' + b'{"":1},' * 55_000 + b"{}]}", manifest, count)


def test_no_images_at_all(manifest):
    assert parse(manifest, instances=[]).request.images.shape == (0, 4, 3, 1)
    assert parse(manifest, instances=[], signature_name="serving_bytes").request.files == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"{}", 'either "instances" or "inputs"'),
        (b'{"instances": [], "inputs": []}', "either"),
        (b'{"instances": [], "signature_name": "other"}', "no signature 'other'"),
        (b'{"instances": 3}', "must be a list"),
        (b'{"inputs": 3}', "must be a list"),
        (b'{"instances": [{"picture": 1}]}', "one input 'image'. Received: 'picture'"),
        (b'{"instances": [[1, 2], [3]]}', r"takes images of \(batch, 4, 3, 1\)"),
        (b'{"instances": [[[1]]]}', r"shape \(1, 1, 1\)"),
        (b'{"instances": ["text"]}', "shape"),
        (b'{"instances": [null]}', r"image 1 must be .* nested lists of shape \(4, 3, 1\). Received: null"),
        (b'{"instances": [[[[1]]], 1]}', "image 2 must be .* Received: 1"),
        (b'{"instances": [{"image": "' + b"x" * 99 + b'"}]}', 'image 1 must be .* Received: "x{59}[.]$'),
        (b'{"inputs": {"image": [{}]}}', "image 1 must be .* Received: {}"),
        (b'{"instances": [{"b64": "iVBORw0KGgo="}]}', 'need "signature_name": "serving_bytes"'),
        (b'{"inputs": {"image": [{"b64": "iVBORw0KGgo="}]}}', 'need "signature_name": "serving_bytes"'),
        (b'{"instances": [null], "signature_name": "serving_bytes"}', "b64"),
        (b'{"instances": [{"b64": "?"}], "signature_name": "serving_bytes"}', "not base64"),
        (b'{"instances": [{"b64": 3}], "signature_name": "serving_bytes"}', "not base64"),
    ],
)
def test_invalid_requests_are_refused(manifest, body, said):
    with pytest.raises(RequestError, match=said):
        tf_rest.parse(body, manifest)


@pytest.mark.parametrize("value", [-1, 256, 0.5, 1e300, "1", None, True, [1]])
def test_invalid_pixels_are_refused(manifest, value):
    one = json.loads(json.dumps(LISTS[0]))
    one[0][0][0] = value
    with pytest.raises(RequestError):
        parse(manifest, instances=[one])


def test_a_long_string_takes_no_more_memory_than_itself(manifest):
    body = json.dumps({"instances": ["a" * 10**6, *"b" * 200]}).encode()
    tracemalloc.start()
    with pytest.raises(RequestError, match="shape"):
        tf_rest.parse(body, manifest)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Padded, they would take 800 MB.
    assert most < 5 * 10**7


def test_answers():
    outputs = {
        "probabilities": np.float32([[0.25, 0.75], [1, 0]]),
        "class_id": np.array([1, 0]),
        "label": ["b", "a"],
    }
    rows = json.loads(tf_rest.format_response(outputs, rows=True))
    assert rows == {
        "predictions": [
            {"probabilities": [0.25, 0.75], "class_id": 1, "label": "b"},
            {"probabilities": [1, 0], "class_id": 0, "label": "a"},
        ]
    }
    assert json.loads(tf_rest.format_response(outputs, rows=False)) == {
        "outputs": {"probabilities": [[0.25, 0.75], [1, 0]], "class_id": [1, 0], "label": ["b", "a"]}
    }


def test_a_lone_output_has_no_name():
    # As in TF Serving: a regression without gates has only `value`.
    outputs = {"value": np.float32([[3.5], [4]])}
    assert json.loads(tf_rest.format_response(outputs, rows=True)) == {"predictions": [[3.5], [4]]}
    assert json.loads(tf_rest.format_response(outputs, rows=False)) == {"outputs": [[3.5], [4]]}

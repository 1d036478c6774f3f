"""Bodies of arbitrary JSON are either read or refused with a reason."""

import contextlib

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.manifest import Manifest
from serving.protocols import open_inference, tf_rest

SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 3, 12, -1, 256, 2**53, 2**63, 2**64 - 1, 0.5, 1e308, "", "AAAA", "é", "1"]
)
WORDS = (
    "image",
    "image_bytes",
    "b64",
    "name",
    "datatype",
    "shape",
    "data",
    "parameters",
    "binary_data_size",
    "binary_data",
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=12,
)
SHAPES = st.sampled_from([[1, 4, 3, 1], [True, 4, 3, 1], [0, 4, 3, 1], [2**62, 4, 3, 1], [1], [0], [1.0, 4, 3, 1]])
TENSORS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["image", "image_bytes"]) | SCALARS,
        "datatype": st.sampled_from(["UINT8", "BYTES"]) | SCALARS,
        "shape": SHAPES | NESTED,
    },
    optional={
        "data": st.lists(SCALARS, min_size=12, max_size=12) | NESTED,
        "parameters": st.fixed_dictionaries({"binary_data_size": SCALARS}) | NESTED,
    },
)
INFER = st.fixed_dictionaries(
    {"inputs": st.lists(TENSORS, max_size=2) | NESTED}, optional={"outputs": NESTED, "id": NESTED}
)
PREDICT = st.dictionaries(
    st.sampled_from(["instances", "inputs", "signature_name"]), st.sampled_from(["serving_bytes"]) | NESTED
)
FUZZED = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def manifest(content):
    file = {"size": 1, "sha256": "0" * 64}
    return Manifest.model_validate({**content, "files": {"model.onnx": file, "labels.txt": file}})


def right(request):
    if request.images is None:
        assert all(isinstance(file, bytes) for file in request.files)
    else:
        assert (request.images.dtype, request.images.shape[1:]) == (np.uint8, (4, 3, 1))


@FUZZED
@given(body=INFER | NESTED, behind=st.binary(max_size=13))
def test_v2(manifest, body, behind):
    head = orjson.dumps(body)
    with contextlib.suppress(RequestError):
        right(open_inference.parse(head + behind, str(len(head)), manifest).request)


@FUZZED
@given(body=PREDICT | NESTED)
def test_tf_rest(manifest, body):
    with contextlib.suppress(RequestError):
        right(tf_rest.parse(orjson.dumps(body), manifest).request)

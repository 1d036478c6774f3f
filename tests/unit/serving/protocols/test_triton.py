import pytest

from serving.errors import RequestError
from serving.manifest import Manifest
from serving.protocols import triton
from serving.statistics import Statistics


@pytest.fixture
def manifest(content):
    file = {"size": 1, "sha256": "0" * 64}
    return Manifest.model_validate({**content, "files": {"model.onnx": file, "labels.txt": file}})


def test_configuration(manifest):
    found = triton.config(manifest, "onnxruntime_onnx", [3, 1], 256)
    assert (found["platform"], found["backend"], found["max_batch_size"]) == ("onnxruntime_onnx", "onnxruntime", 256)
    assert found["version_policy"] == {"specific": {"versions": [1, 3]}}
    image, encoded = found["input"]
    assert image == {"name": "image", "data_type": "TYPE_UINT8", "dims": [4, 3, 1], "format": "FORMAT_NHWC"}
    assert encoded == {
        "name": "image_bytes", "data_type": "TYPE_STRING", "dims": [1], "reshape": {"shape": []}, "optional": True,
    }  # fmt: skip
    probabilities, class_id = found["output"]
    assert (probabilities["dims"], probabilities["label_filename"]) == ([4], "labels.txt")
    assert (class_id["data_type"], class_id["dims"]) == ("TYPE_INT64", [1])


def test_the_index_lists_every_version_or_those_that_answer():
    versions = [("a", 2, "failed", "damaged"), ("a", 1, "available", ""), ("b", 1, "loading", "")]
    states = [(one["name"], one["version"], one["state"], one["reason"]) for one in triton.index(versions, ready=False)]
    assert states == [("a", "2", "UNAVAILABLE", "damaged"), ("a", "1", "READY", ""), ("b", "1", "LOADING", "")]
    assert [one["version"] for one in triton.index(versions, ready=True)] == ["1"]


@pytest.mark.parametrize(("body", "ready"), [(b"", False), (b"{}", False), (b'{"ready": true}', True)])
def test_requests_for_the_index(body, ready):
    assert triton.is_ready_only(body) is ready


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"ready": null}', b'{"ready": "yes"}', b'{"other": "' + b"x" * 5000])
def test_invalid_requests_for_the_index(body):
    with pytest.raises(RequestError, match="must be empty, or a JSON object"):
        triton.is_ready_only(body)


def test_statistics(manifest):
    statistics = Statistics()
    for _ in range(2):
        statistics.compute(3, 0.25)
        statistics.succeed(3, 0.5)
    statistics.compute(1, 0.125)
    statistics.fail(1.0)
    found = triton.statistics(manifest, statistics)
    assert (found["inference_count"], found["execution_count"]) == (6, 3)
    assert found["inference_stats"]["success"] == {"count": 2, "ns": 10**9}
    assert found["inference_stats"]["fail"] == {"count": 1, "ns": 10**9}
    assert found["inference_stats"]["compute_infer"] == {"count": 3, "ns": 625_000_000}
    assert found["batch_stats"] == [
        {"batch_size": 1, "compute_infer": {"count": 1, "ns": 125_000_000}},
        {"batch_size": 3, "compute_infer": {"count": 2, "ns": 500_000_000}},
    ]

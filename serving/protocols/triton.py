"""Triton's extensions of the Open Inference Protocol: model configuration, repository index, and statistics."""

from collections.abc import Iterable
from typing import Any

import orjson

from serving.errors import RequestError
from serving.manifest import ENCODED, LABELS, ONNX, PROBABILITIES, Manifest
from serving.statistics import Durations, Statistics

EXTENSIONS = ("binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics")
_TYPES = {"uint8": "TYPE_UINT8", "float32": "TYPE_FP32", "int64": "TYPE_INT64", "string": "TYPE_STRING"}
# Bytes of a request for the index.
_LONGEST = 1024
_STATES = {"available": "READY", "loading": "LOADING", "failed": "UNAVAILABLE"}


def config(manifest: Manifest, platform: str, versions: Iterable[int], largest: int) -> dict[str, Any]:
    """Returns the configuration of a model, as `ModelConfig` of Triton's `model_config.proto` describes it.

    Args:
        manifest: manifest of the model.
        platform: name of the backend.
        versions: versions in service.
        largest: maximum number of images or rows in a request.
    """

    def tensor(name: str, dtype: str, shape: tuple[int | None, ...]) -> dict[str, Any]:
        described: dict[str, Any] = {"name": name, "data_type": _TYPES[dtype], "dims": list(shape[1:]) or [1]}
        # Triton's tensors have at least one dimension after the batch.
        return described if shape[1:] else {**described, "reshape": {"shape": []}}

    inputs = [tensor(name, one.dtype, one.shape) for name, one in manifest.signatures.values()]
    for one in inputs:
        if one["name"] == ENCODED:
            # A client has to send one of the two; those that fill every required input send pixels.
            one["optional"] = True
        elif not manifest.is_table:
            one["format"] = "FORMAT_NHWC"
    outputs = [tensor(name, one.dtype, one.shape) for name, one in manifest.outputs.items()]
    for one in outputs:
        if one["name"] == PROBABILITIES:
            one["label_filename"] = LABELS
    return {
        "name": manifest.name,
        "platform": platform,
        "backend": platform.partition("_")[0],
        "version_policy": {"specific": {"versions": sorted(versions)}},
        "max_batch_size": largest,
        "input": inputs,
        "output": outputs,
        "default_model_filename": ONNX,
    }


def index(versions: Iterable[tuple[str, int, str, str]], ready: bool) -> list[dict[str, str]]:
    """Returns the versions in the repository with their states.

    Args:
        versions: model, number, state (available, loading or failed), and the reason of a failure.
        ready: whether to leave out versions that do not answer.
    """
    return [
        {"name": name, "version": str(number), "state": _STATES[state], "reason": reason}
        for name, number, state, reason in versions
        if state == "available" or not ready
    ]


def is_ready_only(body: bytes) -> bool:
    """Returns whether a request for the index asks only for versions that answer.

    Args:
        body: the body of `POST /v2/repository/index`.

    Raises:
        RequestError: it is malformed.
    """
    try:
        given = orjson.loads(body[:_LONGEST] or b"{}")
    except orjson.JSONDecodeError:
        given = None
    ready = given.get("ready", False) if isinstance(given, dict) else None
    if not isinstance(ready, bool):
        raise RequestError('the body must be empty, or a JSON object such as {"ready": true}.')
    return ready


def statistics(manifest: Manifest, found: Statistics) -> dict[str, Any]:
    """Returns the statistics of a version, as `ModelStatistics` of Triton's `grpc_service.proto` describes them.

    Args:
        manifest: its manifest.
        found: its statistics.
    """
    batches = sorted(found.batches.items())
    computed = Durations(sum(one.count for _, one in batches), sum(one.seconds for _, one in batches))
    return {
        "name": manifest.name,
        "version": str(manifest.version),
        # Milliseconds.
        "last_inference": int(1000 * found.last),
        "inference_count": found.images,
        "execution_count": computed.count,
        "inference_stats": {
            "success": _duration(found.succeeded),
            "fail": _duration(found.failed),
            "queue": _duration(found.waited),
            "compute_input": _duration(found.converted),
            "compute_infer": _duration(computed),
        },
        "batch_stats": [{"batch_size": size, "compute_infer": _duration(one)} for size, one in batches],
    }


def _duration(total: Durations) -> dict[str, int]:
    return {"count": total.count, "ns": round(1e9 * total.seconds)}

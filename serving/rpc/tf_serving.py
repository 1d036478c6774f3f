"""Methods of TF Serving's PredictionService and ModelService."""

from collections.abc import Callable
from typing import Any

from serving.engine.backends import ServedVersion, complete, count_values
from serving.engine.processes import SMALL
from serving.errors import RequestError
from serving.messages import tf_serving as messages
from serving.messages.protobuf import first_field
from serving.protocols import tf_predict as protocol
from serving.protocols.tf_rest import STATES
from serving.requests.endpoint_parts import EndpointParts
from serving.rpc.calls import GrpcCall, Method, parsing_cost

PREDICTION, MODELS = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"


def prediction_methods(parts: EndpointParts) -> dict[str, Method]:
    """Returns the methods of PredictionService by name."""
    catalog, predictor = parts.catalog, parts.predictor

    def finder(call: GrpcCall, spec: Any) -> Callable[[], ServedVersion]:
        call.model = spec.name
        name, version, label = protocol.version(spec)
        return lambda: call.found(catalog.find(name, version, label))

    async def predict(call: GrpcCall, body: bytes) -> bytes:
        find = finder(call, _request(messages.ModelSpec, first_field(body, 1)))
        served, limit = find(), predictor.settings.images
        parsed = await predictor.offload(
            parsing_cost(body, messages.BULK), protocol.parse, body, served.manifest, limit
        )
        served, _, outputs, *_ = await predictor.predict(served, parsed.request, find)
        found = complete(outputs, served.manifest)
        return await predictor.offload(
            count_values(found), protocol.format_response, found, served.manifest, parsed.without_images()
        )

    async def metadata(call: GrpcCall, body: bytes) -> bytes:
        given = _request(messages.GetModelMetadataRequest, body)
        if set(given.metadata_field) != {protocol.SIGNATURE_DEF}:
            raise RequestError(f"metadata_field must be {protocol.SIGNATURE_DEF!r}.")
        return protocol.metadata(finder(call, given.model_spec)().manifest)

    return {"Predict": predict, "GetModelMetadata": metadata}


def model_methods(parts: EndpointParts) -> dict[str, Method]:
    """Returns the methods of ModelService by name."""
    catalog = parts.catalog

    async def status(call: GrpcCall, body: bytes) -> bytes:
        spec = _request(messages.GetModelStatusRequest, body).model_spec
        call.model = spec.name
        name, version, label = protocol.version(spec)
        if label is not None:
            version = catalog.find(name, label=label).manifest.version
        return protocol.statuses(
            (one.version, STATES[one.state], one.reason) for one in catalog.statuses(name, version)
        )

    return {"GetModelStatus": status}


def _request(kind: Any, body: bytes) -> Any:
    if len(body) > SMALL:
        raise RequestError(f"the message is not a {kind.DESCRIPTOR.name}.")
    return protocol.message(kind, body)

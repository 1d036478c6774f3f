"""Methods of the Open Inference Protocol's gRPC service, which KServe's and Triton's clients call."""

from collections.abc import Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from serving.engine.about import VERSION, About
from serving.engine.backends import ServedVersion, complete, count_values
from serving.engine.processes import SMALL
from serving.errors import ModelError, RequestError, UnknownModelError
from serving.messages.open_inference import BULK, CLASSES
from serving.messages.protobuf import first_field
from serving.protocols import open_inference_grpc as protocol
from serving.protocols import triton
from serving.protocols.request import parse_version
from serving.requests.endpoint_parts import EndpointParts
from serving.rpc.calls import GrpcCall, Method, parsing_cost, text

SERVICE = "inference.GRPCInferenceService"


def methods(parts: EndpointParts) -> dict[str, Method]:
    """Returns the methods by name."""
    catalog, predictor = parts.catalog, parts.predictor
    about = About(catalog, predictor.settings)

    def finder(call: GrpcCall, name: str, version: str) -> Callable[[], ServedVersion]:
        call.model = name
        number = parse_version(version)
        return lambda: call.found(catalog.find(name, number))

    async def live(_: GrpcCall, __: bytes) -> bytes:
        return _response("ServerLiveResponse", live=True)

    async def ready(_: GrpcCall, __: bytes) -> bytes:
        try:
            await about.check_ready()
        except ModelError:
            return _response("ServerReadyResponse", ready=False)
        return _response("ServerReadyResponse", ready=True)

    async def model_ready(call: GrpcCall, body: bytes) -> bytes:
        given = _request("ModelReadyRequest", body)
        try:
            await about.check_model_ready(finder(call, given.name, given.version)())
        except (ModelError, UnknownModelError):
            return _response("ModelReadyResponse", ready=False)
        return _response("ModelReadyResponse", ready=True)

    async def server_metadata(_: GrpcCall, __: bytes) -> bytes:
        return _response("ServerMetadataResponse", name="highway-keras", version=VERSION, extensions=triton.EXTENSIONS)

    async def metadata(call: GrpcCall, body: bytes) -> bytes:
        given = _request("ModelMetadataRequest", body)
        return _from_json("ModelMetadataResponse", about.metadata(finder(call, given.name, given.version)()))

    async def config(call: GrpcCall, body: bytes) -> bytes:
        given = _request("ModelConfigRequest", body)
        found = about.config(finder(call, given.name, given.version)())
        return _from_json("ModelConfigResponse", {"config": found})

    async def statistics(call: GrpcCall, body: bytes) -> bytes:
        given = _request("ModelStatisticsRequest", body)
        call.model = given.name
        found = about.statistics(given.name or None, parse_version(given.version))
        return _from_json("ModelStatisticsResponse", found)

    async def index(_: GrpcCall, body: bytes) -> bytes:
        given = _request("RepositoryIndexRequest", body)
        return _from_json("RepositoryIndexResponse", {"models": about.index(ready=given.ready)})

    async def infer(call: GrpcCall, body: bytes) -> bytes:
        find = finder(call, text(first_field(body, 1)), text(first_field(body, 2)))
        served, limit, cost = find(), predictor.settings.images, parsing_cost(body, BULK)
        parsed = await predictor.offload(cost, protocol.parse, body, served.manifest, limit)
        served, _, outputs, *_ = await predictor.predict(served, parsed.request, find)
        found = complete(outputs, served.manifest)
        return await predictor.offload(
            count_values(found), protocol.format_response, found, served.manifest, parsed.without_images()
        )

    return {
        "ServerLive": live,
        "ServerReady": ready,
        "ModelReady": model_ready,
        "ServerMetadata": server_metadata,
        "ModelMetadata": metadata,
        "ModelConfig": config,
        "ModelStatistics": statistics,
        "RepositoryIndex": index,
        "ModelInfer": infer,
    }


def _request(name: str, body: bytes) -> Any:
    try:
        if len(body) <= SMALL:
            return CLASSES[name].FromString(body)
    except DecodeError:
        pass
    raise RequestError(f"the message is not a {name}.")


def _response(message: str, **fields: Any) -> bytes:
    return CLASSES[message](**fields).SerializeToString()


def _from_json(name: str, content: dict[str, Any]) -> bytes:
    return json_format.ParseDict(content, CLASSES[name]()).SerializeToString()

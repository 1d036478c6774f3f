"""Routes of the Open Inference Protocol, version 2."""

import asyncio
from dataclasses import replace

from fastapi import APIRouter, Request, Response

from serving.engine.backends import ServedVersion, complete, count_values
from serving.engine.catalog import Catalog
from serving.engine.predictor import Predictor
from serving.errors import ModelError, UnavailableError
from serving.http.openapi import INFER_BODY, INFERRED, JSON, METADATA, RAW, TEXT, VERSION, operation, record
from serving.http.tf_rest import finder
from serving.protocols import open_inference as protocol
from serving.protocols import request as requests

# Replaces the images, which the process that formats the response does not need.
EMPTY = requests.Request(None, None)
_PATHS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


def router(catalog: Catalog[ServedVersion], predictor: Predictor) -> APIRouter:
    """Returns the routes."""
    routes = APIRouter(tags=["Open Inference Protocol"])

    @routes.get("/v2", summary="The server")
    async def server() -> dict[str, object]:
        return {"name": "highway-keras", "version": VERSION, "extensions": ["binary_tensor_data"]}

    @routes.get("/v2/health/live", summary="Liveness of the server")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @routes.get(
        "/v2/health/ready", summary="Readiness of the server", responses={503: {"description": "No model is ready."}}
    )
    async def ready() -> dict[str, bool]:
        served = [catalog.find(name) for name in catalog.names()]
        if catalog.loading:
            raise UnavailableError(f"the models are still being loaded, {len(served)} so far.")
        if not served:
            raise ModelError("no model is served. Export one with `highway export`; /v1/models lists refused versions.")
        if not any(await asyncio.gather(*(one.ready() for one in served))):
            raise ModelError("no model can predict at the moment.")
        return {"ready": True}

    async def model(request: Request) -> dict[str, object]:
        served = finder(catalog, request)()
        state = catalog.models().get(served.manifest.name)
        versions = sorted(state.served if state else [served.manifest.version])
        return protocol.metadata(served.manifest, served.platform, versions)

    async def model_ready(request: Request) -> dict[str, object]:
        served = finder(catalog, request)()
        if not await served.ready():
            raise ModelError(f"model {served.manifest.name!r} cannot predict at the moment.")
        return {"name": served.manifest.name, "ready": True}

    async def infer(request: Request) -> Response:
        find = finder(catalog, request)
        served = find()
        body, header = await request.body(), request.headers.get(protocol.HEADER)
        size, limit = protocol.json_length(header, len(body)), predictor.settings.images
        parsed = await predictor.offload(size, protocol.parse, body, header, served.manifest, limit)
        served, _, outputs = await predictor.predict(served, parsed.request, find)
        found, request_outputs = complete(outputs, served.manifest), replace(parsed, request=EMPTY)
        body, length = await predictor.offload(
            count_values(found), protocol.format_response, found, served.manifest, request_outputs
        )
        if length is None:
            return Response(body, media_type=JSON)
        return Response(body, headers={protocol.HEADER: str(length)}, media_type=RAW)

    is_ready = {JSON: {"schema": record(name=TEXT, ready={"type": "boolean"})}}
    for path in _PATHS:
        predicts = operation(INFERRED, path, INFER_BODY, "Tensors, in JSON or after it, as requested.")
        routes.add_api_route(path + "/infer", infer, methods=["POST"], summary="Predict", openapi_extra=predicts)
        routes.add_api_route(
            path + "/ready", model_ready, summary="Readiness of a model", openapi_extra=operation(is_ready, path)
        )
        routes.add_api_route(path, model, summary="Inputs and outputs", openapi_extra=operation(METADATA, path))
    return routes

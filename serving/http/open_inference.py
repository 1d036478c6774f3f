"""Routes of the Open Inference Protocol, version 2."""

from dataclasses import replace

import orjson
from fastapi import APIRouter, Request, Response

from serving.engine.about import VERSION, About
from serving.engine.backends import ServedVersion, complete, count_values
from serving.engine.catalog import Catalog
from serving.engine.predictor import Predictor
from serving.engine.processes import COPIED
from serving.http.compression import compress
from serving.http.openapi import (
    CONFIG,
    INDEX,
    INDEX_BODY,
    INFER_BODY,
    INFERRED,
    JSON,
    METADATA,
    RAW,
    STATISTICS,
    TEXT,
    operation,
    record,
)
from serving.http.tf_rest import finder, path_parameters
from serving.protocols import open_inference as protocol
from serving.protocols import request as protocol_request
from serving.protocols import triton

# Replaces the images, which the process that formats the response does not need.
EMPTY = protocol_request.Request(None, None)
_PATHS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


def router(catalog: Catalog[ServedVersion], predictor: Predictor) -> APIRouter:
    """Returns the routes."""
    routes, about = APIRouter(tags=["Open Inference Protocol"]), About(catalog, predictor.settings)

    @routes.get("/v2", summary="The server", openapi_extra=operation(None))
    async def server() -> dict[str, object]:
        return {"name": "highway-keras", "version": VERSION, "extensions": list(triton.EXTENSIONS)}

    @routes.get("/v2/health/live", summary="Liveness of the server")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @routes.get(
        "/v2/health/ready", summary="Readiness of the server", responses={503: {"description": "No model is ready."}}
    )
    async def ready() -> dict[str, bool]:
        await about.check_ready()
        return {"ready": True}

    indexed = operation(INDEX, "", INDEX_BODY)
    indexed["requestBody"]["required"] = False

    # Before the paths with a name: the statistics of a model called "stats" are at its own path only.
    @routes.get("/v2/models/stats", summary="Statistics of all models", openapi_extra=operation(STATISTICS))
    async def all_statistics() -> dict[str, object]:
        return about.statistics(None, None)

    @routes.post("/v2/repository/index", summary="Versions and their states", openapi_extra=indexed)
    async def index(request: Request) -> Response:
        found = about.index(ready=triton.is_ready_only(await request.body()))
        return Response(orjson.dumps(found), media_type=JSON)

    async def model(request: Request) -> dict[str, object]:
        return about.metadata(finder(catalog, request)())

    async def config(request: Request) -> dict[str, object]:
        return about.config(finder(catalog, request)())

    async def statistics(request: Request) -> dict[str, object]:
        name, version, _ = path_parameters(request)
        return about.statistics(name, version)

    async def model_ready(request: Request) -> dict[str, object]:
        served = finder(catalog, request)()
        await about.check_model_ready(served)
        return {"name": served.manifest.name, "ready": True}

    async def infer(request: Request) -> Response:
        find = finder(catalog, request)
        served = find()
        body, header = await request.body(), request.headers.get(protocol.HEADER)
        size, limit = protocol.json_length(header, len(body)), predictor.settings.images
        # Numbers may have to be converted one by one, and strings be separated.
        size = len(body) if len(body) > COPIED else size
        parsed = await predictor.offload(size, protocol.parse, body, header, served.manifest, limit)
        served, _, outputs, *_ = await predictor.predict(served, parsed.request, find)
        found, request_outputs = complete(outputs, served.manifest), replace(parsed, request=EMPTY)
        body, length = await predictor.offload(
            count_values(found), protocol.format_response, found, served.manifest, request_outputs
        )
        body, headers = await compress(body, request.headers.get("accept-encoding"))
        if length is None:
            return Response(body, headers=headers, media_type=JSON)
        return Response(body, headers={**headers, protocol.HEADER: str(length)}, media_type=RAW)

    is_ready = {JSON: {"schema": record(name=TEXT, ready={"type": "boolean"})}}
    for path in _PATHS:
        predicts = operation(INFERRED, path, INFER_BODY, "Tensors, in JSON or after it, as requested.")
        routes.add_api_route(path + "/infer", infer, methods=["POST"], summary="Predict", openapi_extra=predicts)
        routes.add_api_route(
            path + "/ready", model_ready, summary="Readiness of a model", openapi_extra=operation(is_ready, path)
        )
        for suffix, answer, summary, response in (
            ("/config", config, "Configuration of a model", CONFIG),
            ("/stats", statistics, "Statistics of a model", STATISTICS),
        ):
            routes.add_api_route(path + suffix, answer, summary=summary, openapi_extra=operation(response, path))
        routes.add_api_route(path, model, summary="Inputs and outputs", openapi_extra=operation(METADATA, path))
    return routes

"""The paths of the Open Inference Protocol, version 2."""

import asyncio
from dataclasses import replace

from fastapi import APIRouter, Request, Response

from serving.api.describe import INFER_BODY, INFERRED, JSON, METADATA, RAW, TEXT, answers, record
from serving.api.tf_rest import finding
from serving.backends import Served, complete, values
from serving.catalog import Catalog
from serving.errors import ModelError, UnavailableError
from serving.predicting import Predictor
from serving.protocols import request as requests
from serving.protocols import v2
from serving.version import VERSION

# Pictures that are predicted are not sent to where an answer is written.
NOTHING = requests.Request(None, None)
_ONES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


def router(catalog: Catalog[Served], predictor: Predictor) -> APIRouter:
    """The routes."""
    made = APIRouter(tags=["Open Inference Protocol"])

    @made.get("/v2", summary="The server")
    async def server() -> dict[str, object]:
        return {"name": "highway-keras", "version": VERSION, "extensions": ["binary_tensor_data"]}

    @made.get("/v2/health/live", summary="Whether the server runs")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @made.get("/v2/health/ready", summary="Whether a model can be asked", responses={503: {"description": "None can."}})
    async def ready() -> dict[str, bool]:
        served = [catalog.find(name) for name in catalog.names()]
        if catalog.loading:
            raise UnavailableError(f"the models are still being loaded, {len(served)} up to now.")
        if not served:
            raise ModelError("no model is served. Export one with `highway export`; /v1/models says what was refused.")
        if not any(await asyncio.gather(*(one.ready() for one in served))):
            raise ModelError("no model can be asked at the moment.")
        return {"ready": True}

    async def model(request: Request) -> dict[str, object]:
        served = finding(catalog, request)()
        entry = catalog.entries().get(served.manifest.name)
        versions = sorted(entry.served if entry else [served.manifest.version])
        return v2.metadata(served.manifest, served.platform, versions)

    async def model_ready(request: Request) -> dict[str, object]:
        served = finding(catalog, request)()
        if not await served.ready():
            raise ModelError(f"model {served.manifest.name!r} cannot be asked at the moment.")
        return {"name": served.manifest.name, "ready": True}

    async def infer(request: Request) -> Response:
        find = finding(catalog, request)
        served = find()
        body, header = await request.body(), request.headers.get(v2.HEADER)
        size, limit = v2.json_length(header, len(body)), predictor.settings.pictures
        parsed = await predictor.offload(size, v2.parse, body, header, served.manifest, limit)
        served, _, outputs = await predictor.predict(served, parsed.request, find)
        found, asked = complete(outputs, served.manifest), replace(parsed, request=NOTHING)
        body, length = await predictor.offload(values(found), v2.answer, found, served.manifest, asked)
        if length is None:
            return Response(body, media_type=JSON)
        return Response(body, headers={v2.HEADER: str(length)}, media_type=RAW)

    is_ready = {JSON: {"schema": record(name=TEXT, ready={"type": "boolean"})}}
    for path in _ONES:
        predicts = answers(INFERRED, path, INFER_BODY, "Tensors, in JSON or behind it as they were asked for.")
        made.add_api_route(path + "/infer", infer, methods=["POST"], summary="Predict", openapi_extra=predicts)
        made.add_api_route(
            path + "/ready", model_ready, summary="Whether it answers", openapi_extra=answers(is_ready, path)
        )
        made.add_api_route(path, model, summary="Inputs and outputs", openapi_extra=answers(METADATA, path))
    return made

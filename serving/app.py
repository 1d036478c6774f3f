"""The endpoint: routes, limits, page and metrics over a catalog of model versions."""

import gc
import logging
import math
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from serving import errors
from serving.api import models, page, plain, tf_rest, v2
from serving.api.describe import describe
from serving.backends import Backend, InProcessBackend, Served
from serving.catalog import Catalog
from serving.dispatch import Dispatch
from serving.metrics import batches, scrape
from serving.middleware import Access, App
from serving.offload import Offload
from serving.predicting import Predictor
from serving.protocols import v2 as v2_protocol
from serving.settings import Settings
from serving.version import VERSION

log = logging.getLogger(__name__)
ABOUT = """
Three ways to ask the same models:

* **Pictures**: `POST /predict/{model}` takes picture files, or raw pixels, and answers with names and probabilities.
* **TF Serving**: the REST interface of TensorFlow Serving, for its clients.
* **Open Inference Protocol**, version 2, with binary tensors, for the clients of KServe, Triton and others.

Whatever is refused is answered with `{"error": "what happened, what was expected"}`. 503 comes with `Retry-After`.
If the endpoint has a key, send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
"""
# Seconds that the opening of a version has to end when the endpoint stops.
CLOSING = 2.0
STATUS = {
    errors.UnknownModelError: 404,
    errors.RequestError: 400,
    errors.PictureError: 400,
    errors.LimitError: 413,
    errors.OutputError: 500,
    errors.BusyError: 503,
    errors.SlowError: 504,
    errors.ModelError: 503,
}


def make_app(settings: Settings) -> App:
    """Puts an endpoint together.

    Args:
        settings: what it serves, and its limits.

    Returns:
        An ASGI app.

    Example:
        uvicorn.run(make_app(Settings(models=Path("models"))))
    """
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="predict")
    processes = Offload(settings.threads)
    backend = _backend(settings, executor)
    catalog: Catalog[Served] = Catalog(settings.models, backend.open)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.start()
        # Whoever asks meanwhile is answered: that the endpoint lives, and what is loaded up to now. What is there after
        # that stays: looking through it for garbage again and again is a pause for some request.
        watching = catalog.watch(settings.poll, gc.freeze)
        yield
        catalog.close()
        # It may be opening a version, for which the backend is needed; a disk that does not answer is not waited for.
        await run_in_threadpool(watching.join, CLOSING)
        await backend.close()
        executor.shutdown()
        processes.close()
        predictor.close()

    app = FastAPI(
        title="highway-keras",
        version=VERSION,
        summary="Predictions of exported highway networks.",
        description=ABOUT,
        lifespan=lifespan,
        # Both load their pages from elsewhere; /openapi.json is there.
        docs_url=None,
        redoc_url=None,
    )
    predictor = Predictor(settings, executor, catalog.refresh, processes)
    protocols = [protocol.router(catalog, predictor) for protocol in (plain, tf_rest, v2)]
    for router in (*protocols, models.router(catalog)):
        app.include_router(router)

    @app.get("/metrics", tags=["Operation"], summary="For Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(scrape(catalog), media_type=CONTENT_TYPE_LATEST)

    page.add(app)
    describe(app, secured=settings.api_key is not None)
    for kind in STATUS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _failed)
    # Outside of FastAPI, whose own layers take as long as all of these.
    predicting = [route for router in protocols for route in router.routes if isinstance(route, APIRoute)]
    fast = Dispatch(app, [one for one in predicting if "POST" in (one.methods or ())], _error)
    whole: App = Access(fast, settings.api_key, settings.body, settings.bodies)
    if settings.origins:
        whole = CORSMiddleware(
            whole,
            allow_origins=settings.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            # What a page of another site may read beside the body.
            expose_headers=[v2_protocol.HEADER, "retry-after"],
        )
    return whole


async def _error(request: Request, error: Exception) -> Response:
    """The answer to an error in a prediction."""
    if isinstance(error, ClientDisconnect):
        return await _gone(request, error)
    if _status(error):
        return await _refused(request, error)
    log.error("a prediction failed", exc_info=error)
    return await _failed(request, error)


def _backend(settings: Settings, executor: Executor) -> Backend:
    if settings.tf_serving is None:
        return InProcessBackend(settings, executor, batches)
    # Its clients are not needed otherwise.
    from serving.tf_serving.backend import TfServingBackend

    return TfServingBackend(settings, settings.tf_serving)


def _status(error: Exception) -> int:
    """Of an error or of what it is a kind of; 0 if it is a bug."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 0)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    status = _status(error)
    headers = {"Retry-After": str(math.ceil(getattr(error, "after", 1.0)))} if status == 503 else {}
    return JSONResponse({"error": str(error)}, status, headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}."}, 400)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = f"{error.detail}."
    if error.status_code == 404:
        said = f"there is nothing at {request.url.path}. /openapi.json tells what there is."
    elif error.status_code == 405:
        said = (
            f"{request.method} is not possible at {request.url.path}. Expected: {(error.headers or {}).get('Allow')}."
        )
    return JSONResponse({"error": said}, error.status_code, error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    # Nobody reads it; for the log and the metrics, by the number that nginx has for this.
    return Response(status_code=499)


async def _failed(_: Request, __: Exception) -> JSONResponse:
    return JSONResponse({"error": "the endpoint failed. Its log says why."}, 500)

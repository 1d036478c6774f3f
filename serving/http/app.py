"""The endpoint as an ASGI app: routes, limits, page and metrics over a catalog of model versions."""

import asyncio
import gc
import math
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from serving.engine.about import VERSION
from serving.engine.backends import Backend, InProcessBackend, ServedVersion
from serving.engine.catalog import Catalog
from serving.engine.mirror import Mirror
from serving.engine.predictor import Predictor
from serving.engine.processes import Offload
from serving.engine.settings import Settings
from serving.engine.trials import PATIENCE
from serving.http import open_inference, page, predict, tf_rest
from serving.http.middleware import AccessLayer, App, Dispatch, record_of
from serving.http.openapi import describe, operation
from serving.keys import Keys
from serving.protocols.open_inference import HEADER
from serving.requests import metrics
from serving.requests.access import AccessControl
from serving.requests.endpoint_parts import EndpointParts
from serving.requests.refusals import FAILED, STATUS, kind_of, refusal
from serving.tracing import Tracing

ABOUT = """
Three protocols for the same models:

* **Images and tables**: `POST /predict/{model}` takes image files, raw pixels or rows, and returns labels and
  probabilities, or values.
* **TF Serving**: the REST interface of TensorFlow Serving, for its clients.
* **Open Inference Protocol**, version 2, with binary tensors, for the clients of KServe, Triton and others.

Errors are `{"error": "what happened, what was expected"}`. 503 comes with `Retry-After`.
If the endpoint has a key, send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
"""
# Seconds that a version still being opened has to finish when the endpoint stops.
CLOSING = 2.0
# Serves until its context ends.
OtherServer = Callable[[EndpointParts], AbstractAsyncContextManager[None]]


def make_app(settings: Settings, other: OtherServer | None = None) -> App:
    """Builds an endpoint.

    Args:
        settings: settings of the endpoint.
        other: another server, which runs while the app does.

    Returns:
        An ASGI app.

    Example:
        uvicorn.run(make_app(Settings(models=Path("models"))))
    """
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="predict")
    processes = Offload(settings.threads)
    backend = _backend(settings, executor)
    catalog: Catalog[ServedVersion] = Catalog(
        settings.models,
        backend.open,
        mirror=Mirror(settings.bucket, settings.models) if settings.bucket else None,
    )
    keys, tracing = Keys(settings.api_key, settings.key_file), Tracing()
    versions: set[tuple[str, int]] = set()

    def after_check() -> None:
        nonlocal versions
        backend.rest()
        found = {(name, version) for name, state in catalog.models().items() for version in state.served}
        if found != versions:
            metrics.retire(versions, found)
            versions = found
            # Almost everything alive now is permanent, and scanning it for garbage would pause some request. Not after
            # every check: that would also freeze the cycles of requests in flight, with the bodies that they hold.
            gc.collect()
            gc.freeze()
        settings.readiness.update(catalog.loading)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.start()
        gc.collect()
        gc.freeze()
        polling = catalog.start_polling(settings.poll, after_check)
        current = asyncio.create_task(_keep_current(keys, catalog, settings.poll))
        await settings.readiness.wait(settings.closing)
        parts = EndpointParts(settings, catalog, predictor, access)
        async with other(parts) if other else nullcontext():
            yield
        current.cancel()
        catalog.close()
        backend.interrupt()
        # The thread may be opening a version, which needs the backend; an unresponsive disk is not waited for.
        await run_in_threadpool(polling.join, CLOSING)
        await backend.close()
        # All requests have been answered; a prediction that never ends is not waited for.
        executor.shutdown(wait=False, cancel_futures=True)
        processes.close()
        predictor.close()
        await run_in_threadpool(tracing.close, CLOSING)

    app = FastAPI(
        title="highway-keras",
        version=VERSION,
        summary="Predictions of exported highway networks.",
        description=ABOUT,
        lifespan=lifespan,
        # Both pages load scripts from other sites; /openapi.json stays.
        docs_url=None,
        redoc_url=None,
        # They would lead clients, with their keys, wherever the Host header says.
        redirect_slashes=False,
    )
    predictor = Predictor(settings, executor, catalog.refresh, processes, tracing)
    protocols = [protocol.router(catalog, predictor) for protocol in (predict, tf_rest, open_inference)]
    routers = [*protocols, page.router(catalog)]
    for router in routers:
        app.include_router(router)

    @app.get(
        "/metrics",
        tags=["Operation"],
        summary="For Prometheus",
        response_class=PlainTextResponse,
        openapi_extra=operation(None),
    )
    async def scrape() -> Response:
        return Response(metrics.scrape(catalog), media_type=CONTENT_TYPE_LATEST)

    page.add(app)
    describe(app, secured=bool(keys))
    handlers = {RequestValidationError: _invalid, HTTPException: _http_error, ClientDisconnect: _disconnected}
    for kind, handle in {**dict.fromkeys(STATUS, _refused), **handlers, Exception: _failed}.items():
        app.add_exception_handler(kind, handle)
    # Around FastAPI instead of inside it: its own layers take as long as all of these.
    predicting = [route for router in protocols for route in router.routes if isinstance(route, APIRoute)]
    routes = [route for router in (app, *routers) for route in router.routes if isinstance(route, Route)]
    dispatch = Dispatch(app, [one for one in predicting if "POST" in (one.methods or ())], _prediction_error)
    access = AccessControl(settings, keys, tracing, catalog.models)
    return _with_cors(AccessLayer(dispatch, access, settings, routes), settings.origins)


async def _keep_current(keys: Keys, catalog: Catalog[ServedVersion], seconds: float) -> None:
    """Reads keys again and publishes metrics: a check of the catalog may take a minute to open a version."""
    while True:
        await run_in_threadpool(keys.refresh)
        if metrics.SHARED:
            # A full disk must not end the reading of keys; the gauges are published again soon.
            with suppress(OSError):
                metrics.publish(catalog)
        await asyncio.sleep(seconds)


def _with_cors(app: App, origins: tuple[str, ...]) -> App:
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        # Headers that pages of other sites may read.
        expose_headers=[HEADER, "retry-after", "traceparent", "x-request-id"],
    )


def _backend(settings: Settings, executor: Executor) -> Backend:
    if settings.tf_serving is None:
        return InProcessBackend(settings, executor, metrics.batches, patience=PATIENCE)
    # Imports clients that are not needed otherwise.
    from serving.tf_serving.backend import TfServingBackend

    return TfServingBackend(settings, settings.tf_serving)


async def _prediction_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return await _disconnected(request, error)
    return await _refused(request, error)


def _answer(
    request: Request, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    record_of(request).refuse(kind, message)
    return JSONResponse({"error": message}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    status, message, after = refusal(error)
    headers = {"Retry-After": str(math.ceil(after))} if after else {}
    return _answer(request, status, kind_of(error), message, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Of all parameters, FastAPI checks only numbers in paths.
    given = error.errors()[0]["input"][:64]
    return _answer(request, 400, "request", f"the path has {given!r} in place of a number of up to 19 digits.")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, message = "http", f"{error.detail}."
    if error.status_code == 404:
        kind, message = "path", f"there is nothing at {request.url.path}. /openapi.json lists all paths."
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow")
        kind, message = "method", f"{request.method} is not possible at {request.url.path}. Expected: {allowed}."
    return _answer(request, error.status_code, kind, message, error.headers)


async def _disconnected(request: Request, _: Exception) -> Response:
    # Nobody reads the response; for log and metrics it has the status that nginx uses in this case.
    record_of(request).refuse("disconnected", "the client closed the connection.")
    return Response(status_code=499)


async def _failed(request: Request, error: Exception) -> Response:
    record_of(request).refuse("failed", f"{type(error).__name__}: {error}")
    return JSONResponse({"error": FAILED}, 500)

"""The endpoint: routes, limits, page and metrics over a catalog of model versions."""

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from serving import errors
from serving.access import Access
from serving.api import plain, tf_rest, v2
from serving.catalog import Catalog
from serving.predicting import Predictor
from serving.served import Backend, InProcessBackend, Served
from serving.settings import Settings
from serving.version import VERSION

PAGE = Path(__file__).parent / "page"
STATUS = {
    errors.UnknownModelError: 404,
    errors.RequestError: 400,
    errors.PictureError: 400,
    errors.LimitError: 413,
    errors.BusyError: 503,
    errors.SlowError: 504,
    errors.ModelError: 503,
}


def make_app(settings: Settings) -> FastAPI:
    """Puts an endpoint together.

    Args:
        settings: what it serves, and its limits.

    Returns:
        An ASGI app.

    Example:
        uvicorn.run(make_app(Settings(models=Path("models"))))
    """
    executor = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="predict")
    backend = _backend(settings, executor)
    catalog: Catalog[Served] = Catalog(settings.models, backend.open)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.start()
        await run_in_threadpool(catalog.refresh)
        watching = catalog.watch(settings.poll)
        yield
        catalog.close()
        # It may be opening a version, for which the backend is needed.
        await run_in_threadpool(watching.join)
        await backend.close()
        executor.shutdown()

    app = FastAPI(
        title="highway-keras",
        version=VERSION,
        description="Predictions of exported highway networks.",
        lifespan=lifespan,
        # Both load their pages from elsewhere; /openapi.json is there.
        docs_url=None,
        redoc_url=None,
    )
    predictor = Predictor(settings, executor)
    for protocol in (plain, tf_rest, v2):
        app.include_router(protocol.router(catalog, predictor))

    @app.get("/metrics", tags=["Operation"], summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/models", tags=["Pictures"], summary="What is served")
    async def models() -> list[dict[str, object]]:
        return [
            {
                "name": name,
                "versions": sorted(entry.served, reverse=True),
                "labels": entry.release.labels,
                "failed": {version: why for version, (_, why) in entry.failed.items()},
                "input": {"shape": manifest.input.shape[1:], "pictures": manifest.pictures},
                "gates": manifest.gates is not None,
                "classes": manifest.labels,
            }
            for name, entry in sorted(catalog.entries().items())
            if entry.served
            for manifest in [catalog.find(name).manifest]
        ]

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/static", StaticFiles(directory=PAGE), name="static")
    for kind, status in STATUS.items():
        app.add_exception_handler(kind, _handler(status))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Access, api_key=settings.api_key, body=settings.body)
    if settings.origins:
        app.add_middleware(CORSMiddleware, allow_origins=settings.origins, allow_methods=["*"], allow_headers=["*"])
    return app


def _backend(settings: Settings, executor: Executor) -> Backend:
    if settings.tf_serving is None:
        return InProcessBackend(settings, executor)
    # Its clients are not needed otherwise.
    from serving.tf_serving.backend import TfServingBackend

    return TfServingBackend(settings, settings.tf_serving)


def _handler(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(_: Request, error: Exception) -> JSONResponse:
        headers = {}
        if status == 503:
            headers["Retry-After"] = str(math.ceil(getattr(error, "after", 1.0)))
        return JSONResponse({"error": str(error)}, status, headers)

    return handle


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}."}, 400)


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{error.detail}."}, error.status_code, error.headers)

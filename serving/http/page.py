"""The web page at `/` with its files at `/static`, and the list of models that it shows."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from serving.engine.backends import ServedVersion
from serving.engine.catalog import Catalog
from serving.http.openapi import operation
from serving.schemas import ModelInput, ServedModel

PAGE = Path(__file__).parents[1] / "page"
# The page loads only its own files: no inline script, no frame around it, nothing from other sites.
_ALLOWED = (
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": "; ".join(_ALLOWED),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    # Browsers revalidate every file (304 if it is unchanged), so that after an update all are of the same version.
    "Cache-Control": "no-cache",
}


def router(catalog: Catalog[ServedVersion]) -> APIRouter:
    """Returns the route `/models`, which `serving.client` reads too."""
    routes = APIRouter(tags=["Images"])

    @routes.get("/models", summary="Served models", openapi_extra=operation(None))
    async def models() -> list[ServedModel]:
        # The catalog changes in another thread: each model is read once.
        return [
            ServedModel(
                name=name,
                versions=tuple(sorted(served, reverse=True)),
                labels=model.release.labels,
                failed={version: refusal.reason for version, refusal in model.failed.items()},
                wrong=model.problem or catalog.problem,
                input=ModelInput(shape=manifest.input.shape[1:], pictures=manifest.pictures),
                gates=manifest.gates is not None,
                classes=manifest.labels,
            )
            for name, model in sorted(catalog.models().items())
            if (served := model.served)
            for manifest in [served[max(served)].manifest]
        ]

    return routes


def add(app: FastAPI) -> None:
    """Adds the page to an app."""

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    app.mount("/static", _Files(directory=PAGE), name="static")


class _Files(StaticFiles):
    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response

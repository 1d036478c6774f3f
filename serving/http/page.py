"""The web page at `/` with its files at `/static`, and the models and sample images that it shows."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from serving.engine.backends import ServedVersion
from serving.engine.catalog import Catalog
from serving.errors import UnknownModelError
from serving.http.middleware import record_of
from serving.http.openapi import BINARY, operation
from serving.manifest import ONNX, WEIGHTS, Manifest
from serving.schemas import ModelInput, ServedModel, VersionFacts

T = TypeVar("T")
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
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    # Browsers revalidate every file (304 if it is unchanged), so that after an update all are of the same version.
    "Cache-Control": "no-cache",
}


def router(catalog: Catalog[ServedVersion]) -> APIRouter:
    """Returns the routes `/models`, which `serving.client` reads too, and of sample images."""
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
                input=_input(manifest),
                gates=manifest.gates is not None,
                classes=manifest.labels,
                multi_label=manifest.multi_label,
                facts=tuple(_facts(served[version], manifest) for version in sorted(served, reverse=True)),
            )
            for name, model in sorted(catalog.models().items())
            if (served := model.served)
            for manifest in [served[max(served)].manifest]
        ]

    @routes.get(
        "/models/{name}/versions/{version}/samples/{number}.png",
        summary="Sample image of a version",
        response_class=Response,
        openapi_extra=operation({"image/png": {"schema": BINARY}}, text="A PNG file of the size of the net's input."),
    )
    async def sample(
        request: Request,
        name: Annotated[str, InPath(description="Name of the model.")],
        version: Annotated[str, InPath(description="Number of the version.", pattern="^[0-9]{1,19}$")],
        number: Annotated[int, InPath(description="Number of the image, from 0.", ge=0)],
    ) -> Response:
        served = record_of(request).served = catalog.find(name, int(version))
        samples = served.samples
        shown = [sample for sample in samples.shown if sample.png] if samples else []
        if number >= len(shown):
            raise UnknownModelError(f"version {version} of model {name!r} has {len(shown)} sample images, from 0 on.")
        return Response(shown[number].png, media_type="image/png", headers={"Cache-Control": "no-cache"})

    return routes


def _input(content: Manifest) -> ModelInput:
    return ModelInput(
        shape=content.input.shape[1:],
        pictures=content.pictures,
        columns=content.columns,
        target=content.target,
        label_separator=content.label_separator,
    )


def _facts(served: ServedVersion, newest: Manifest) -> VersionFacts:
    content, samples, test = served.manifest, served.samples, served.manifest.run.test or {}
    return VersionFacts(
        version=content.version,
        created=content.created,
        net=content.model.preset,
        parameters=content.model.parameters,
        size=sum(content.files[name].size for name in (ONNX, WEIGHTS) if name in content.files),
        data=_of_type(str, content.run.data.get("name")),
        test_accuracy=_of_type(float, test.get("accuracy")),
        test_images=_of_type(int, test.get("count")),
        test_mae=_of_type(float, test.get("mae")),
        test_map=_of_type(float, test.get("mean_average_precision")),
        test_r2=_of_type(float, test.get("r2")),
        gates=content.gates is not None,
        maps=served.predict_maps is not None,
        samples=tuple(sample.label for sample in samples.shown) if samples else (),
        rows=tuple(sample.row for sample in samples.shown if sample.row is not None) if samples else (),
        # The page asks for the list again and again, and the versions of a model may have the same thousand classes.
        input=None if _input(content) == _input(newest) else _input(content),
        classes=None if content.labels == newest.labels else content.labels,
        multi_label=None if content.multi_label == newest.multi_label else content.multi_label,
    )


def _of_type(kind: type[T], value: object) -> T | None:
    """Returns a value from a part of the manifest that is not validated; None if it is of another type."""
    return value if type(value) is kind else None


def add(app: FastAPI) -> None:
    """Adds the page to an app."""

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        # Clients of KServe's first protocol ask here whether the server is alive.
        if "text/html" not in request.headers.get("accept", "text/html"):
            return JSONResponse({"status": "alive"})
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    app.mount("/static", _PageFiles(directory=PAGE), name="static")


class _PageFiles(StaticFiles):
    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response

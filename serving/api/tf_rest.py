"""The paths of TF Serving's REST interface, so that its clients can be pointed here and back."""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, HTTPException, Request, Response

from serving.api.describe import JSON, LISTED, PREDICT_BODY, PREDICTED, SIGNATURES, STATUSES, answers
from serving.backends import Served, complete, values
from serving.catalog import Catalog
from serving.entry import Status
from serving.errors import RequestError, UnknownModelError
from serving.manifest import ENCODED, INPUT, SIGNATURE, SIGNATURE_FILES, Manifest
from serving.predicting import Predictor
from serving.protocols import tf_rest

_STATES = {"available": "AVAILABLE", "loading": "LOADING", "failed": "END"}
_TYPES = {"uint8": "DT_UINT8", "float32": "DT_FLOAT", "int64": "DT_INT64", "string": "DT_STRING"}
# A model, one of its versions, or what a label stands for.
_ONES = ("/v1/models/{name}", "/v1/models/{name}/versions/{version}", "/v1/models/{name}/labels/{label}")


def router(catalog: Catalog[Served], predictor: Predictor) -> APIRouter:
    """The routes."""
    made = APIRouter(tags=["TF Serving"])

    async def predict(request: Request) -> Response:
        find = finding(catalog, request)
        served = find()
        body = await request.body()
        limit = predictor.settings.pictures
        parsed = await predictor.offload(len(body), tf_rest.parse, body, served.manifest, limit)
        served, _, outputs = await predictor.predict(served, parsed.request, find)
        found = complete(outputs, served.manifest)
        return Response(await predictor.offload(values(found), tf_rest.answer, found, parsed.rows), media_type=JSON)

    async def status(request: Request) -> dict[str, object]:
        name, version, label = asked(request)
        if version is not None or label is not None:
            version = catalog.find(name, version, label).manifest.version
        entry = catalog.entries().get(name)
        if entry is None:
            raise UnknownModelError(f"there is no model {name!r}. Served are: {', '.join(catalog.names()) or 'none'}.")
        return {"model_version_status": _statuses(entry.statuses(catalog.wrong), version)}

    @made.get("/v1/models", summary="All models, and the state of their versions", openapi_extra=answers(LISTED))
    async def listed() -> dict[str, object]:
        entries = catalog.entries()
        # What is wrong with a model that has no version to say it of; without a name that is the whole repository.
        wrong = {name: entry.wrong for name, entry in entries.items()} | {"": catalog.wrong}
        return {
            "models": catalog.names(),
            "statuses": {name: _statuses(entry.statuses(catalog.wrong)) for name, entry in sorted(entries.items())},
            "wrong": {name: why for name, why in wrong.items() if why},
            "loading": catalog.loading,
        }

    async def metadata(request: Request) -> dict[str, object]:
        return _metadata(finding(catalog, request)().manifest)

    for path in _ONES:
        # The longest first, as a path parameter takes all up to the next slash.
        made.add_api_route(
            path + ":predict", predict, methods=["POST"], summary="Predict",
            openapi_extra=answers(PREDICTED, path, PREDICT_BODY, "Predictions, by row or by column."),
        )  # fmt: skip
        made.add_api_route(path + "/metadata", metadata, summary="Signatures", openapi_extra=answers(SIGNATURES, path))
        made.add_api_route(path, status, summary="State of versions", openapi_extra=answers(STATUSES, path))
    return made


def finding(catalog: Catalog[Served], request: Request) -> Callable[[], Served]:
    """A function that finds what a path asks for: the newest version, a version, or what a label stands for now."""
    return partial(catalog.find, *asked(request))


def asked(request: Request) -> tuple[str, int | None, str | None]:
    """Name, version and label in a path."""
    given = request.path_params
    if request.url.path.endswith(":predict") and request.method != "POST":
        raise HTTPException(405, headers={"Allow": "POST"})
    version = given.get("version")
    if version is not None and not (version.isascii() and version.isdecimal() and len(version) < 19):
        raise RequestError(f"a version is a positive integer. Received: {version!r}.")
    return given["name"], None if version is None else int(version), given.get("label")


def _statuses(found: list[Status], version: int | None = None) -> list[dict[str, object]]:
    return [
        {
            "version": str(status.version),
            "state": _STATES[status.state],
            "status": {
                "error_code": "FAILED_PRECONDITION" if status.state == "failed" else "OK",
                "error_message": status.why,
            },
        }
        for status in found
        if version in (None, status.version)
    ]


def _metadata(manifest: Manifest) -> dict[str, object]:
    def tensor(name: str, dtype: str, shape: tuple[int | None, ...]) -> dict[str, object]:
        sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in shape]
        return {"name": name, "dtype": _TYPES[dtype], "tensor_shape": {"dim": sizes, "unknown_rank": False}}

    outputs = {name: tensor(name, one.dtype, one.shape) for name, one in manifest.outputs.items()}
    signatures = {
        SIGNATURE: (INPUT, tensor(INPUT, "uint8", manifest.input.shape)),
        SIGNATURE_FILES: (ENCODED, tensor(ENCODED, "string", (None,))),
    }
    return {
        "model_spec": {"name": manifest.name, "signature_name": "", "version": str(manifest.version)},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    name: {"inputs": {given: one}, "outputs": outputs, "method_name": "tensorflow/serving/predict"}
                    for name, (given, one) in signatures.items()
                }
            }
        },
    }

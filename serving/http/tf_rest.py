"""Routes of TF Serving's REST interface, for its clients."""

from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Request, Response

from serving.engine.backends import ServedVersion, complete, count_values
from serving.engine.catalog import Catalog
from serving.engine.predictor import Predictor
from serving.engine.status import VersionStatus
from serving.errors import RequestError
from serving.http.middleware import record_of
from serving.http.openapi import JSON, LISTED, PREDICT_BODY, PREDICTED, SIGNATURES, STATUSES, operation
from serving.inputs import Tensor
from serving.manifest import Manifest
from serving.protocols import tf_rest as protocol
from serving.protocols.request import parse_version
from serving.schemas import TableMetadata

_TYPES = {"uint8": "DT_UINT8", "float32": "DT_FLOAT", "int64": "DT_INT64", "string": "DT_STRING"}
# A model, one of its versions, or a label.
_PATHS = ("/v1/models/{name}", "/v1/models/{name}/versions/{version}", "/v1/models/{name}/labels/{label}")


def router(catalog: Catalog[ServedVersion], predictor: Predictor) -> APIRouter:
    """Returns the routes."""
    routes = APIRouter(tags=["TF Serving"])

    async def predict(request: Request) -> Response:
        find = finder(catalog, request)
        served = find()
        body = await request.body()
        limit = predictor.settings.images
        parsed = await predictor.offload(len(body), protocol.parse, body, served.manifest, limit)
        served, _, outputs, *_ = await predictor.predict(served, parsed.request, find)
        found = complete(outputs, served.manifest)
        size, warnings = count_values(found), parsed.request.warnings
        body = await predictor.offload(size, protocol.format_response, found, parsed.rows, warnings)
        return Response(body, media_type=JSON)

    async def status(request: Request) -> dict[str, object]:
        name, version, label = path_parameters(request)
        if label is not None:
            version = catalog.find(name, label=label).manifest.version
        found = catalog.statuses(name, version)
        ready = any(one.state == "available" for one in found)
        # `name` and `ready` are for the clients of KServe's first protocol.
        return {"name": name, "ready": ready, "model_version_status": [_as_json(one) for one in found]}

    @routes.get("/v1/models", summary="All models and the states of their versions", openapi_extra=operation(LISTED))
    async def listed() -> dict[str, object]:
        models = catalog.models()
        # Problems of models, including those without versions; the empty name stands for the whole repository.
        problems = {name: model.problem for name, model in models.items()} | {"": catalog.problem}
        return {
            "models": catalog.names(),
            "statuses": {
                name: [_as_json(one) for one in model.statuses(catalog.problem)]
                for name, model in sorted(models.items())
            },
            "wrong": {name: problem for name, problem in problems.items() if problem},
            "loading": catalog.loading,
        }

    async def metadata(request: Request) -> dict[str, object]:
        return _metadata(finder(catalog, request)().manifest)

    async def unserved(request: Request) -> Response:
        method = request.path_params["method"][:64]
        raise RequestError(f"there is no method {method!r}. Expected: POST to a path that ends in :predict.")

    for path in _PATHS:
        # The longest first: a path parameter matches everything up to the next slash.
        routes.add_api_route(
            path + ":predict", predict, methods=["POST"], summary="Predict",
            openapi_extra=operation(PREDICTED, path, PREDICT_BODY, "Predictions, by row or by column."),
        )  # fmt: skip
        routes.add_api_route(
            path + "/metadata", metadata, summary="Signatures", openapi_extra=operation(SIGNATURES, path)
        )
        routes.add_api_route(path, status, summary="States of versions", openapi_extra=operation(STATUSES, path))
        routes.add_api_route(path + ":{method}", unserved, methods=["POST"], include_in_schema=False)
    return routes


def finder(catalog: Catalog[ServedVersion], request: Request) -> Callable[[], ServedVersion]:
    """Returns a function that finds the version in a path: the newest, one by number, or a label's current one."""
    name, version, label = path_parameters(request)

    def find() -> ServedVersion:
        served = record_of(request).served = catalog.find(name, version, label)
        return served

    return find


def path_parameters(request: Request) -> tuple[str, int | None, str | None]:
    """Returns name, version and label in a path; no version is the newest."""
    parameters = request.path_params
    if request.url.path.endswith(":predict") and request.method != "POST":
        raise HTTPException(405, headers={"Allow": "POST"})
    return parameters["name"], parse_version(parameters.get("version")), parameters.get("label")


def _as_json(status: VersionStatus) -> dict[str, object]:
    return {
        "version": str(status.version),
        "state": protocol.STATES[status.state],
        "status": {
            "error_code": "FAILED_PRECONDITION" if status.state == "failed" else "OK",
            "error_message": status.reason,
        },
    }


def _metadata(manifest: Manifest) -> dict[str, object]:
    def tensor(name: str, one: Tensor) -> dict[str, object]:
        sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in one.shape]
        return {"name": name, "dtype": _TYPES[one.dtype], "tensor_shape": {"dim": sizes, "unknown_rank": False}}

    outputs = {name: tensor(name, one) for name, one in manifest.outputs.items()}
    signatures = {
        signature: {
            "inputs": {name: tensor(name, one)},
            "outputs": outputs,
            "method_name": "tensorflow/serving/predict",
        }
        for signature, (name, one) in manifest.signatures.items()
    }
    found: dict[str, object] = {"signature_def": {"signature_def": signatures}}
    if manifest.is_table:
        found |= TableMetadata(
            columns=manifest.columns,
            target=manifest.target,
            classes=manifest.labels,
            multi_label=manifest.multi_label,
            label_separator=manifest.label_separator,
        ).model_dump()
    return {
        "model_spec": {"name": manifest.name, "signature_name": "", "version": str(manifest.version)},
        "metadata": found,
    }

"""OpenAPI descriptions of the routes that read and write their bodies themselves."""

import re
from typing import Any

from fastapi import FastAPI

JSON = "application/json"
RAW = "application/octet-stream"
TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
ANY: dict[str, Any] = {}
BINARY: dict[str, Any] = {"type": "string", "format": "binary"}


def record(*, optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Returns the schema of an object with these properties, required unless they are optional."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def array(items: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items}


_B64 = {**record(b64={"type": "string", "format": "byte"}), "additionalProperties": False}
_NUMBERS = array(ANY)
# The parameters of a tensor include the number of its bytes after the JSON.
_TENSOR = {"shape": array({"type": "integer", "minimum": 0}), "data": _NUMBERS, "parameters": {"type": "object"}}

PREDICT_BODY = {
    JSON: {
        "schema": {
            "type": "object",
            "properties": {
                "signature_name": {"type": "string", "enum": ["serving_default", "serving_bytes"]},
                "instances": array({"anyOf": [_B64, _NUMBERS, {"type": "object"}]}),
                "inputs": {"anyOf": [array({"anyOf": [_B64, _NUMBERS]}), {"type": "object"}]},
            },
            "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
        },
        "example": {"signature_name": "serving_bytes", "instances": [{"b64": "iVBORw0KGgo="}]},
    }
}
_WARNINGS = array(TEXT)
PREDICTED = {
    JSON: {
        "schema": {
            "oneOf": [
                # A lone output has no name.
                record(
                    predictions=array({"anyOf": [{"type": "object"}, _NUMBERS]}),
                    warnings=_WARNINGS,
                    optional=("warnings",),
                ),
                record(
                    outputs={"anyOf": [{"type": "object", "additionalProperties": {"type": "array"}}, _NUMBERS]},
                    warnings=_WARNINGS,
                    optional=("warnings",),
                ),
            ]
        }
    }
}
_STATUSES = array(
    record(
        version=TEXT,
        state={"type": "string", "enum": ["AVAILABLE", "LOADING", "END"]},
        status=record(error_code=TEXT, error_message=TEXT),
    )
)
STATUSES = {JSON: {"schema": record(name=TEXT, ready={"type": "boolean"}, model_version_status=_STATUSES)}}
LISTED = {
    JSON: {
        "schema": record(
            models=array(TEXT),
            statuses={"type": "object", "additionalProperties": _STATUSES},
            wrong={"type": "object", "additionalProperties": TEXT},
            loading={"type": "boolean"},
        )
    }
}
SIGNATURES = {
    JSON: {
        "schema": record(
            model_spec=record(name=TEXT, signature_name=TEXT, version=TEXT),
            metadata=record(
                signature_def=record(signature_def={"type": "object"}),
                columns=array(
                    record(
                        name=TEXT,
                        categories={"anyOf": [array(TEXT), {"type": "null"}]},
                        date={"type": "string", "enum": ["day", "time"]},
                        optional=("date",),
                    )
                ),
                target=TEXT,
                classes=array(TEXT),
                multi_label={"type": "boolean"},
                label_separator=TEXT,
                optional=("columns", "target", "classes", "multi_label", "label_separator"),
            ),
        )
    }
}
INFER_BODY = {
    JSON: {
        "schema": record(
            id=TEXT,
            inputs={
                **array(
                    record(
                        name={"type": "string", "enum": ["image", "image_bytes", "row"]},
                        datatype=TEXT,
                        **_TENSOR,
                        optional=("data", "parameters"),
                    )
                ),
                "minItems": 1,
                "maxItems": 1,
            },
            outputs=array(record(name=TEXT, parameters={"type": "object"}, optional=("parameters",))),
            parameters={"type": "object"},
            optional=("id", "outputs", "parameters"),
        )
    },
    RAW: {"schema": BINARY},
}
_DATATYPE = {"type": "string", "enum": ["UINT8", "FP32", "INT64", "BYTES"]}
INFERRED = {
    JSON: {
        "schema": record(
            model_name=TEXT,
            model_version=TEXT,
            id=TEXT,
            outputs=array(record(name=TEXT, datatype=_DATATYPE, **_TENSOR, optional=("data", "parameters"))),
            optional=("id",),
        )
    },
    RAW: {"schema": BINARY},
}
_DESCRIBED = array(record(name=TEXT, datatype=_DATATYPE, shape=array(WHOLE)))
METADATA = {
    JSON: {
        "schema": record(name=TEXT, versions=array(TEXT), platform=TEXT, inputs=_DESCRIBED, outputs=_DESCRIBED),
    }
}
INDEX_BODY = {JSON: {"schema": record(ready={"type": "boolean"}, optional=("ready",))}}
INDEX = {JSON: {"schema": array(record(name=TEXT, version=TEXT, state=TEXT, reason=TEXT))}}
CONFIG = {JSON: {"schema": record(name=TEXT, platform=TEXT, max_batch_size=WHOLE, input=_NUMBERS, output=_NUMBERS)}}
_STATISTICS = record(
    name=TEXT,
    version=TEXT,
    last_inference=WHOLE,
    inference_count=WHOLE,
    execution_count=WHOLE,
    inference_stats={"type": "object"},
    batch_stats=array({"type": "object"}),
)
STATISTICS = {JSON: {"schema": record(model_stats=array(_STATISTICS))}}
_ROW = {"anyOf": [{"type": "object"}, _NUMBERS]}
EXAMPLES_BODY = {
    "multipart/form-data": {"schema": record(picture={**array(BINARY), "minItems": 1})},
    "image/png": {"schema": BINARY},
    "image/jpeg": {"schema": BINARY},
    RAW: {"schema": BINARY},
    JSON: {"schema": record(rows=array(_ROW)), "example": {"rows": [{"rooms": 4, "city": "Rome"}]}},
}
# Reasons to refuse a request, by status.
_REFUSED = {
    400: "The request does not fit the model.",
    401: "The key is missing or wrong.",
    404: "There is no such model, version or label.",
    413: "The request exceeds a limit, which the error names.",
    415: "The body is compressed in another way than gzip or deflate.",
    421: "The Host header has a name that is not the endpoint's.",
    429: "The key sends more requests than its limit; Retry-After says when to try again.",
    500: "The model failed or computed what cannot be an answer, for this image or row at least.",
    503: "A queue is full, models are being loaded, or no version can answer; Retry-After says when to try again.",
    504: "The prediction exceeded the time limit.",
}
# Those that do not apply only to predictions.
_ANY_REQUEST = (400, 401, 404, 421, 429, 503)
_ERROR = {JSON: {"schema": record(error=TEXT)}}
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
_PARAMETERS = {
    "name": ("Name of the model.", TEXT),
    "version": ("Number of the version; 0 is the newest.", {"type": "string", "pattern": "^[0-9]{1,19}$"}),
    "label": ("Label of a version.", TEXT),
}


def operation(
    response: dict[str, Any] | None, path: str = "", body: dict[str, Any] | None = None, text: str = "The response."
) -> dict[str, Any]:
    """Returns the part of an operation with its parameters, body, response and errors.

    Args:
        response: schemas by content type, or None where FastAPI derives them.
        path: path of the route, with the names of its parameters, which `_PARAMETERS` describes.
        body: schemas by content type, or None for a request without a body.
        text: describes the response.
    """
    responses: dict[str, Any] = {
        str(status): {"description": reason, "content": _ERROR}
        for status, reason in _REFUSED.items()
        if body is not None or status in _ANY_REQUEST
    }
    for status in {"429", "503"} & responses.keys():
        responses[status] = {**responses[status], "headers": _RETRY}
    if response is not None:
        responses["200"] = {"description": text, "content": response}
    described: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}
            for name in re.findall(r"{(\w+)}", path)
            for meaning, schema in [_PARAMETERS[name]]
        ],
        "responses": responses,
    }
    if body is not None:
        described["requestBody"] = {"required": True, "content": body}
    return described


def describe(app: FastAPI, secured: bool) -> None:
    """Corrects `/openapi.json` where this endpoint differs from FastAPI's defaults.

    Args:
        app: app with all its routes.
        secured: whether it requires a key.
    """
    default = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            whole = default()
            for operations in whole["paths"].values():
                for operation in operations.values():
                    # Wrong parameters get 400 here, like all other invalid requests.
                    operation["responses"].pop("422", None)
            parts = whole["components"]
            for name in ("HTTPValidationError", "ValidationError"):
                parts["schemas"].pop(name, None)
            if secured:
                parts["securitySchemes"] = {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                }
                whole["security"] = [{"bearer": []}, {"header": []}]
            app.openapi_schema = whole
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

"""What OpenAPI cannot take from the routes, as these read and write their bodies themselves."""

from typing import Any

from fastapi import FastAPI

JSON = "application/json"
RAW = "application/octet-stream"
TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
ANY: dict[str, Any] = {}
BINARY: dict[str, Any] = {"type": "string", "format": "binary"}


def record(*, optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Schema of an object with these properties, all of them there but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def many(items: dict[str, Any]) -> dict[str, Any]:
    """Schema of a list."""
    return {"type": "array", "items": items}


_B64 = {**record(b64={"type": "string", "format": "byte"}), "additionalProperties": False}
_NUMBERS = many(ANY)
# Beside its data a tensor has parameters, such as the bytes that it has behind the JSON.
_TENSOR = {"shape": many({"type": "integer", "minimum": 0}), "data": _NUMBERS, "parameters": {"type": "object"}}

PREDICT_BODY = {
    JSON: {
        "schema": {
            "type": "object",
            "properties": {
                "signature_name": {"type": "string", "enum": ["serving_default", "serving_bytes"]},
                "instances": many({"anyOf": [_B64, _NUMBERS, {"type": "object"}]}),
                "inputs": {"anyOf": [many({"anyOf": [_B64, _NUMBERS]}), {"type": "object"}]},
            },
            "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
        },
        "example": {"signature_name": "serving_bytes", "instances": [{"b64": "iVBORw0KGgo="}]},
    }
}
PREDICTED = {
    JSON: {
        "schema": {
            "oneOf": [
                record(predictions=many({"type": "object"})),
                record(outputs={"type": "object", "additionalProperties": {"type": "array"}}),
            ]
        }
    }
}
_STATUSES = many(
    record(
        version=TEXT,
        state={"type": "string", "enum": ["AVAILABLE", "LOADING", "END"]},
        status=record(error_code=TEXT, error_message=TEXT),
    )
)
STATUSES = {JSON: {"schema": record(model_version_status=_STATUSES)}}
LISTED = {
    JSON: {
        "schema": record(
            models=many(TEXT),
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
            metadata=record(signature_def=record(signature_def={"type": "object"})),
        )
    }
}
INFER_BODY = {
    JSON: {
        "schema": record(
            id=TEXT,
            inputs={
                **many(
                    record(
                        name={"type": "string", "enum": ["image", "image_bytes"]},
                        datatype={"type": "string", "enum": ["UINT8", "BYTES"]},
                        **_TENSOR,
                        optional=("data", "parameters"),
                    )
                ),
                "minItems": 1,
                "maxItems": 1,
            },
            outputs=many(record(name=TEXT, parameters={"type": "object"}, optional=("parameters",))),
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
            outputs=many(record(name=TEXT, datatype=_DATATYPE, **_TENSOR, optional=("data", "parameters"))),
            optional=("id",),
        )
    },
    RAW: {"schema": BINARY},
}
_DESCRIBED = many(record(name=TEXT, datatype=_DATATYPE, shape=many(WHOLE)))
METADATA = {
    JSON: {
        "schema": record(name=TEXT, versions=many(TEXT), platform=TEXT, inputs=_DESCRIBED, outputs=_DESCRIBED),
    }
}
PICTURES_BODY = {
    "multipart/form-data": {"schema": record(picture={**many(BINARY), "minItems": 1})},
    "image/png": {"schema": BINARY},
    "image/jpeg": {"schema": BINARY},
    RAW: {"schema": BINARY},
}
# Why a request may be refused, by status; those from 413 on only where there is something to predict.
_REFUSED = {
    400: "The request is not what the model takes.",
    401: "The key is missing or wrong.",
    404: "There is no such model, version or label.",
    413: "The request is larger than it may be; the error names the limit.",
    415: "The body is compressed.",
    500: "The model gave what is no number (NaN or infinite), for this picture at least.",
    503: "Too much is waiting, or the models are still being loaded; Retry-After says when to try again.",
    504: "The prediction took too long.",
}
_ERROR = {JSON: {"schema": record(error=TEXT)}}
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
_PARAMETERS = {
    "name": ("Name of the model.", TEXT),
    "version": ("Number of the version.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
    "label": ("Label of a version.", TEXT),
}


def answers(
    answer: dict[str, Any] | None, path: str = "", body: dict[str, Any] | None = None, said: str = "The answer."
) -> dict[str, Any]:
    """The part of an operation that describes parameters, body, answer and errors.

    Args:
        answer: schemas by content type, or None where FastAPI knows.
        path: of the route, for the names of its parameters.
        body: schemas by content type, or None for a request without.
        said: of the answer.
    """
    responses: dict[str, Any] = {
        str(status): {"description": why, "content": _ERROR}
        for status, why in _REFUSED.items()
        if body is not None or status < 413
    }
    if body is not None:
        responses["503"] = {**responses["503"], "headers": _RETRY}
    if answer is not None:
        responses["200"] = {"description": said, "content": answer}
    described: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "path", "required": True, "description": said, "schema": schema}
            for name, (said, schema) in _PARAMETERS.items()
            if f"{{{name}}}" in path
        ],
        "responses": responses,
    }
    if body is not None:
        described["requestBody"] = {"required": True, "content": body}
    return described


def describe(app: FastAPI, secured: bool) -> None:
    """Makes `/openapi.json` say what this endpoint does where FastAPI would say what others do.

    Args:
        app: with all its routes.
        secured: whether it asks for a key.
    """
    of_fastapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            whole = of_fastapi()
            for operations in whole["paths"].values():
                for operation in operations.values():
                    # A wrong parameter is a 400 here, as is all else that is wrong.
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

"""What OpenAPI cannot take from the routes, as these read their bodies themselves."""

from typing import Any

JSON = "application/json"
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_NUMBERS = {"type": "array", "items": {}}
_B64 = {
    "type": "object",
    "required": ["b64"],
    "properties": {"b64": {"type": "string", "format": "byte"}},
    "additionalProperties": False,
}
PREDICT_BODY = {
    JSON: {
        "schema": {
            "type": "object",
            "properties": {
                "signature_name": {"type": "string", "enum": ["serving_default", "serving_bytes"]},
                "instances": {"type": "array", "items": {"anyOf": [_B64, _NUMBERS, {"type": "object"}]}},
                "inputs": {"anyOf": [{"type": "array", "items": {"anyOf": [_B64, _NUMBERS]}}, {"type": "object"}]},
            },
            "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
        },
        "example": {"signature_name": "serving_bytes", "instances": [{"b64": "iVBORw0KGgo="}]},
    }
}
INFER_BODY = {
    JSON: {
        "schema": {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": {"type": "string"},
                "inputs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["name", "shape", "datatype"],
                        "properties": {
                            "name": {"type": "string", "enum": ["image", "image_bytes"]},
                            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                            "datatype": {"type": "string", "enum": ["UINT8", "BYTES"]},
                            "data": {"type": "array", "items": {}},
                            "parameters": {"type": "object"},
                        },
                    },
                },
                "outputs": {
                    "type": "array",
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                },
                "parameters": {"type": "object"},
            },
        }
    },
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
PICTURES_BODY = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "required": ["picture"],
            "properties": {"picture": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    },
    "image/png": {"schema": {"type": "string", "format": "binary"}},
    "image/jpeg": {"schema": {"type": "string", "format": "binary"}},
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
# Why a request may be refused, by status.
_REFUSED = {
    400: "The request is not what the model takes.",
    401: "The key is missing or wrong.",
    404: "There is no such model, version or label.",
    413: "The request is larger than it may be.",
    503: "Too much is waiting, or nothing is served; Retry-After says when to try again.",
    504: "It took too long.",
}
_PARAMETERS = {
    "name": ("Name of the model.", {"type": "string"}),
    "version": ("Number of the version.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
    "label": ("Label of a version.", {"type": "string"}),
}


def answers(body: dict[str, Any] | None, path: str) -> dict[str, Any]:
    """The part of an operation that describes body, parameters and errors.

    Args:
        body: schemas by content type, or None for a request without.
        path: of the route, for the names of its parameters.
    """
    described: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "path", "required": True, "description": said, "schema": schema}
            for name, (said, schema) in _PARAMETERS.items()
            if f"{{{name}}}" in path
        ],
        "responses": {
            str(status): {"description": said, "content": {JSON: {"schema": _ERROR}}}
            for status, said in _REFUSED.items()
        },
    }
    if body is not None:
        described["requestBody"] = {"required": True, "content": body}
    return described

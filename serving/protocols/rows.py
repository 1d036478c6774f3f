"""Rows of a table for `POST /predict/{model}`, and the response, as `serving.schemas.Answer` describes it."""

from collections.abc import Mapping
from typing import Any

import orjson

from serving.errors import RequestError
from serving.manifest import GATE_MEANS, PROBABILITIES, VALUE, Manifest
from serving.protocols.images import ranked
from serving.protocols.request import IMAGES, Request, expected, parse_json, to_rows

KEY = "rows"


def parse(body: bytes, manifest: Manifest, rows: int = IMAGES) -> Request:
    """Parses a body.

    Args:
        body: JSON with `rows`, a list of rows as `serving.rows.encode` takes them.
        manifest: manifest of the requested model.
        rows: maximum number of rows in a request.

    Raises:
        LimitError: see `serving.protocols.request.parse_json`.
        RequestError: it is malformed, or a row does not fit the model.
    """
    given = parse_json(body, manifest, rows)
    if not isinstance(given, dict) or KEY not in given:
        raise RequestError(f'the body must be JSON such as {{"{KEY}": [{{...}}, ...]}}. {expected(manifest)}')
    return to_rows(given[KEY], manifest)


def format_response(
    outputs: Mapping[str, Any], manifest: Manifest, warnings: tuple[str, ...], top: int, explain: bool
) -> bytes:
    """Formats the JSON body.

    Args:
        outputs: outputs of the model.
        manifest: its manifest.
        warnings: what to say about the rows besides.
        top: number of classes.
        explain: whether to return mean gates.
    """
    predictions: list[dict[str, Any]]
    if VALUE in outputs:
        predictions = [{"value": value} for (value,) in outputs[VALUE].tolist()]
    else:
        predictions = [{"top": first} for first in ranked(outputs[PROBABILITIES], manifest.labels, top)]
    whole = {"model": manifest.name, "version": manifest.version, "predictions": predictions, "target": manifest.target}
    if explain:
        whole["layers"] = manifest.gates
        for prediction, gates in zip(predictions, outputs[GATE_MEANS], strict=True):
            prediction["gates"] = gates
    if warnings:
        whole["warnings"] = warnings
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)

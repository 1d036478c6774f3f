"""Rows for `POST /predict/{model}`, and its responses, as `serving.schemas.Answer` describes them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from serving.errors import RequestError
from serving.manifest import GATE_MAPS, GATE_MEANS, PROBABILITIES, VALUE, GateMap, Manifest
from serving.model import above_half, top
from serving.protocols.request import IMAGES, Request, expected, parse_json, to_rows
from serving.schemas import digits_notice, json_version

# Decimal places of the values in maps.
DIGITS = 4
# Key of the rows in a body.
ROWS = "rows"


class Content(NamedTuple):
    """Contents of a response for images."""

    names: list[str | None]
    """Names of the image files; None for raw pixels."""
    images: np.ndarray | None
    """Inputs of the net, if the response contains them."""
    outputs: Mapping[str, Any]
    """Outputs of the model."""
    boxes: list[np.ndarray | None] | None
    """Digits of each image file; see `serving.engine.predictor.Predicted`."""
    crops: list[np.ndarray | None] | None
    """Crop of each image file, likewise."""
    top: int
    """Number of classes."""
    explain: bool
    """True if the response contains mean gates."""
    segments: bool
    """True if the response contains each digit; `outputs` then has those of several digits after their file's."""


def parse_rows(body: bytes, manifest: Manifest, rows: int = IMAGES) -> Request:
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
    if not isinstance(given, dict) or ROWS not in given:
        raise RequestError(f'the body must be JSON such as {{"{ROWS}": [{{...}}, ...]}}. {expected(manifest)}')
    return to_rows(given[ROWS], manifest)


def format_images(content: Content, manifest: Manifest) -> bytes:
    """Formats the JSON body for images."""
    guesses = _ranked(content.outputs[PROBABILITIES], manifest.labels, content.top)
    predictions, row = [], 0
    for number, name in enumerate(content.names):
        prediction: dict[str, Any] = {"top": guesses[row]}
        if manifest.multi_label:
            prediction["labels"] = above_half(content.outputs[PROBABILITIES][row].tolist(), manifest.labels)
        if name is not None:
            prediction["file"] = name
        if content.explain:
            prediction["gates"] = content.outputs[GATE_MEANS][row]
        if GATE_MAPS in content.outputs:
            prediction["maps"] = _split(content.outputs[GATE_MAPS][row], manifest.maps)
        if content.images is not None:
            prediction["seen"] = content.images[row]
        if content.crops and (crop := content.crops[number]) is not None:
            prediction["crop"] = crop
        boxes = content.boxes[number] if content.boxes else None
        row += 1
        if boxes is not None:
            own = guesses[row : row + len(boxes)] if len(boxes) > 1 else guesses[row - 1 : row][: len(boxes)]
            row += len(boxes) if content.segments and len(boxes) > 1 else 0
            prediction |= _digits(boxes, own if content.segments else None)
        predictions.append(prediction)
    whole: dict[str, Any] = {"model": manifest.name, "version": json_version(manifest.version)}
    whole["predictions"] = predictions
    if content.explain:
        whole["layers"] = manifest.gates
    if GATE_MAPS in content.outputs:
        whole["map_layers"] = [one.layer for one in manifest.maps]
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)


def format_rows(
    outputs: Mapping[str, Any], manifest: Manifest, warnings: tuple[str, ...], top: int, explain: bool
) -> bytes:
    """Formats the JSON body for rows.

    Args:
        outputs: outputs of the model.
        manifest: its manifest.
        warnings: notes on the rows.
        top: number of classes.
        explain: whether to return mean gates.
    """
    predictions: list[dict[str, Any]]
    if VALUE in outputs:
        predictions = [{"value": value} for (value,) in outputs[VALUE].tolist()]
    else:
        predictions = [{"top": first} for first in _ranked(outputs[PROBABILITIES], manifest.labels, top)]
        if manifest.multi_label:
            for prediction, row in zip(predictions, outputs[PROBABILITIES].tolist(), strict=True):
                prediction["labels"] = above_half(row, manifest.labels)
    whole: dict[str, Any] = {"model": manifest.name, "version": json_version(manifest.version)}
    whole |= {"predictions": predictions, "target": manifest.target}
    if explain:
        whole["layers"] = manifest.gates
        for prediction, gates in zip(predictions, outputs[GATE_MEANS], strict=True):
            prediction["gates"] = gates
    if warnings:
        whole["warnings"] = warnings
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)


def _ranked(probabilities: np.ndarray, labels: Sequence[str], count: int) -> list[list[dict[str, Any]]]:
    """Returns the most probable classes of each example, in descending order.

    Args:
        probabilities: `[n, classes]`.
        labels: names of the classes.
        count: number of classes to return.
    """
    # Lists: taking single numbers out of arrays is slow.
    return [
        [{"label": labels[index], "probability": row[index]} for index in first]
        for row, first in zip(probabilities.tolist(), top(probabilities, count).tolist(), strict=True)
    ]


def _split(values: np.ndarray, maps: Sequence[GateMap]) -> list[np.ndarray]:
    """Cuts the row of an image in `gate_maps` into its maps, rounded: a page shows some 200 levels."""
    ends = np.cumsum([one.height * one.width for one in maps])
    parts = np.split(np.round(values, DIGITS), ends[:-1])
    return [part.reshape(one.height, one.width) for part, one in zip(parts, maps, strict=True)]


def _digits(boxes: np.ndarray, guesses: list[list[dict[str, Any]]] | None) -> dict[str, Any]:
    """Describes the digits of an image.

    Args:
        boxes: their boxes.
        guesses: their classes, the most probable first; None if they were not asked for.
    """
    described: dict[str, Any] = {"digits": len(boxes)}
    if guesses is not None:
        described["segments"] = [{"box": box, "top": one} for box, one in zip(boxes, guesses, strict=True)]
    if notice := digits_notice(len(boxes), "".join(top[0]["label"] for top in guesses or ())):
        described["notice"] = notice
    return described

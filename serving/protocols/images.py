"""The response to `POST /predict/{model}`, as `serving.schemas.Answer` describes it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from serving.manifest import GATE_MAPS, GATE_MEANS, PROBABILITIES, GateMap, Manifest
from serving.model import top

# Decimal places of the values in maps.
DIGITS = 4


class Content(NamedTuple):
    """Contents of a response."""

    names: list[str | None]
    """Names of the image files; None for raw pixels."""
    images: np.ndarray | None
    """Inputs of the net, if the response contains them."""
    outputs: Mapping[str, Any]
    """Outputs of the model."""
    top: int
    """Number of classes."""
    explain: bool
    """True if the response contains mean gates."""


def format_response(content: Content, manifest: Manifest) -> bytes:
    """Formats the JSON body."""
    probabilities = content.outputs[PROBABILITIES]
    predictions = []
    for number, classes in enumerate(top(probabilities, content.top)):
        row = probabilities[number]
        prediction: dict[str, Any] = {
            "top": [{"label": manifest.labels[index], "probability": float(row[index])} for index in classes]
        }
        if content.names[number] is not None:
            prediction["file"] = content.names[number]
        if content.explain:
            prediction["gates"] = content.outputs[GATE_MEANS][number]
        if GATE_MAPS in content.outputs:
            prediction["maps"] = _split(content.outputs[GATE_MAPS][number], manifest.maps)
        if content.images is not None:
            prediction["seen"] = content.images[number]
        predictions.append(prediction)
    whole: dict[str, Any] = {"model": manifest.name, "version": manifest.version, "predictions": predictions}
    if content.explain:
        whole["layers"] = manifest.gates
    if GATE_MAPS in content.outputs:
        whole["map_layers"] = [one.layer for one in manifest.maps]
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)


def _split(values: np.ndarray, maps: Sequence[GateMap]) -> list[np.ndarray]:
    """Cuts the row of an image in `gate_maps` into its maps, rounded: a page shows some 200 levels."""
    ends = np.cumsum([one.height * one.width for one in maps])
    parts = np.split(np.round(values, DIGITS), ends[:-1])
    return [part.reshape(one.height, one.width) for part, one in zip(parts, maps, strict=True)]

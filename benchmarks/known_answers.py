"""Requests whose answers are known: images and photographs in all forms that the endpoint takes, with their outputs.

The expected probabilities are the outputs of the exported net itself, opened in this process.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.hostile_requests import photograph
from serving import image_files
from serving.manifest import PROBABILITIES
from serving.messages.open_inference import CLASSES
from serving.model import Model, open_version

# Images that are sent one by one, in all forms.
IMAGES = 128
TOLERANCE = 1e-4
# The method of the Open Inference Protocol over gRPC that predicts.
INFER = "/inference.GRPCInferenceService/ModelInfer"
_JSON, _RAW = "application/json", "application/octet-stream"
# Everything that an answer can contain.
_ALL = "&seen=true&maps=true&explain=true"

# Returns the number of the version that answered, and its probabilities.
Reader = Callable[[bytes], tuple[int, np.ndarray]]


@dataclass(frozen=True)
class Question:
    """A request whose answer is known.

    Args:
        path: path of the request, or of the gRPC method.
        kind: content type; empty for gRPC.
        body: its body or message.
        read: reads the answer.
        expected: probabilities, `[images, classes]`.
    """

    path: str
    kind: str
    body: bytes
    read: Reader
    expected: np.ndarray

    def problem(self, content: bytes, bad: set[int]) -> str:
        """Returns the fault of an answer; empty if there is none.

        Args:
            content: the answer.
            bad: numbers of versions that must not answer.
        """
        version, found = self.read(content)
        if version in bad:
            return f"version {version} is damaged"
        if found.shape != self.expected.shape:
            return f"{self.path} has the shape {found.shape}"
        difference = float(np.abs(found - self.expected).max())
        return f"{self.path} differs by {difference:.2g}" if not difference <= TOLERANCE else ""


def inputs(digits: np.ndarray, *, colours: bool) -> np.ndarray:
    """Returns digits as inputs of a net for CIFAR, uint8 `[n, 32, 32, 3]`, or as they are."""
    return np.pad(digits, ((0, 0), (2, 2), (2, 2), (0, 0))).repeat(3, axis=-1) if colours else digits


def questions(version: Path, digits: np.ndarray) -> list[Question]:
    """Returns each of some images in all forms, photographs, and batches of all images.

    Args:
        version: the exported net.
        digits: images, uint8 `[n, 28, 28, 1]`, which are adapted to a net for colours.
    """
    model = open_version(version)
    images = inputs(digits, colours=not model.manifest.is_grey)
    expected = model.predict(images)[PROBABILITIES]
    found = []
    for image, probabilities in zip(images[:IMAGES], expected, strict=False):
        found += _forms(model, image[None], probabilities[None])
    found += [one for one in _forms(model, images, expected) if one.kind != "image/png"]
    files = (photograph(999, 999), photograph(2047, 2047, "JPEG"), photograph(4000, 3000, "JPEG"))
    return [*found, *(_of_file(model, file) for file in files)]


def infer_message(model: str, images: np.ndarray, *, listed: bool = False) -> bytes:
    """Returns the gRPC message that asks for the classes of images, in one piece or value by value."""
    tensor = {"name": "image", "datatype": "UINT8", "shape": images.shape}
    raw = [] if listed else [images.tobytes()]
    if listed:
        tensor["contents"] = CLASSES["InferTensorContents"](uint_contents=images.ravel().tolist())
    message = CLASSES["ModelInferRequest"](
        model_name=model, inputs=[CLASSES["InferInputTensor"](**tensor)], raw_input_contents=raw
    )
    return bytes(message.SerializeToString())


def _forms(model: Model, images: np.ndarray, expected: np.ndarray) -> list[Question]:
    """Returns the requests for some images; the PNG file has the first."""
    name, path, labels = model.manifest.name, _path(model), partial(_by_label, model.manifest.labels)
    buffer = io.BytesIO()
    Image.fromarray(images[0].squeeze()).save(buffer, "PNG")
    tensor = {"name": "image", "datatype": "UINT8", "shape": images.shape, "data": images.ravel().tolist()}
    listed = json.dumps({"instances": images.tolist()}).encode()
    return [
        Question(path, _RAW, images.tobytes(), labels, expected),
        Question(path + _ALL, _RAW, images.tobytes(), labels, expected),
        _of_file(model, buffer.getvalue()),
        Question(f"/v1/models/{name}:predict", _JSON, listed, _by_row, expected),
        Question(f"/v2/models/{name}/infer", _JSON, json.dumps({"inputs": [tensor]}).encode(), _by_name, expected),
        Question(INFER, "", infer_message(name, images), _by_message, expected),
        Question(INFER, "", infer_message(name, images, listed=True), _by_message, expected),
    ]


def _of_file(model: Model, file: bytes) -> Question:
    pixels = image_files.decode(file, "an image", side=model.side, grey=model.manifest.is_grey)
    expected = model.predict(model.see(pixels).images)[PROBABILITIES]
    return Question(_path(model), "image/png", file, partial(_by_label, model.manifest.labels), expected)


def _path(model: Model) -> str:
    return f"/predict/{model.manifest.name}?top={len(model.manifest.labels)}"


def _by_label(labels: Sequence[str], content: bytes) -> tuple[int, np.ndarray]:
    answer = json.loads(content)
    tops = [{guess["label"]: guess["probability"] for guess in one["top"]} for one in answer["predictions"]]
    return answer["version"], np.array([[top[label] for label in labels] for top in tops])


def _by_row(content: bytes) -> tuple[int, np.ndarray]:
    # This protocol does not name the version.
    return 1, np.array([one["probabilities"] for one in json.loads(content)["predictions"]])


def _by_name(content: bytes) -> tuple[int, np.ndarray]:
    answer = json.loads(content)
    return _probabilities(answer["model_version"], answer["outputs"], lambda place: answer["outputs"][place]["data"])


def _by_message(content: bytes) -> tuple[int, np.ndarray]:
    answer = CLASSES["ModelInferResponse"].FromString(content)
    outputs = [{"name": one.name, "shape": [*one.shape]} for one in answer.outputs]

    def values(place: int) -> Any:
        # Tensors that were sent value by value are answered likewise.
        raw = answer.raw_output_contents
        return np.frombuffer(raw[place], "<f4") if raw else answer.outputs[place].contents.fp32_contents

    return _probabilities(answer.model_version, outputs, values)


def _probabilities(version: str, outputs: list[dict[str, Any]], values: Callable[[int], Any]) -> tuple[int, np.ndarray]:
    place = [one["name"] for one in outputs].index(PROBABILITIES)
    return int(version), np.reshape(values(place), outputs[place]["shape"])

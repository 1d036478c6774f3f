"""An ONNX model written by hand that classifies photographs by their mean colour; its gates open where it is light."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serving import files, manifest

SIDE = 32
COLOURS = {
    "red": (255, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0),
    "yellow": (255, 255, 0), "cyan": (0, 255, 255), "magenta": (255, 0, 255), "grey": (128, 128, 128),
    "orange": (255, 140, 0), "brown": (120, 70, 20), "a colour with a very long name": (255, 190, 200),
}  # fmt: skip


def add_photographs(repository: Path, like: Path) -> None:
    """Adds version 1 of a model `photographs`; its manifest is that of another model, with other inputs and outputs."""
    folder = repository / "photographs" / "1"
    folder.mkdir(parents=True)
    labels = tuple(COLOURS)
    _save(
        folder / manifest.ONNX,
        *_classifier(),
        _value("image", TensorProto.UINT8, ["batch", SIDE, SIDE, 3]),
        "probabilities",
        "gate_means",
        "gate_maps",
    )
    _save(folder / manifest.PICTURE, *_converter(), _value("rgba", TensorProto.UINT8, ["height", "width", 4]), "image")
    (folder / manifest.LABELS).write_text("\n".join(labels) + "\n")
    content = json.loads((like / manifest.NAME).read_text()) | {
        "name": "photographs",
        "input": {"name": "image", "dtype": "uint8", "shape": [None, SIDE, SIDE, 3], "colour": "rgb"},
        "outputs": {
            "probabilities": {"dtype": "float32", "shape": [None, len(labels)]},
            "gate_means": {"dtype": "float32", "shape": [None, 1]},
        },
        "labels": labels,
        "pictures": "natural",
        "gates": ["light"],
        "maps": [{"layer": "light", "height": SIDE, "width": SIDE}],
        "files": files.digests(folder),
    }
    (folder / manifest.NAME).write_text(manifest.Manifest.model_validate(content).model_dump_json())


def _classifier():
    """Builds the softmax over the distances of the mean colour from each of the colours."""
    colours = np.array(list(COLOURS.values()), "float32") / 255
    return [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels", "sides"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "kernel"], ["inner"]),
        helper.make_node("Add", ["inner", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        helper.make_node("ReduceMean", ["pixels", "channels"], ["light"], keepdims=0),
        helper.make_node("Div", ["light", "white"], ["gates"]),
        helper.make_node("Flatten", ["gates"], ["gate_maps"]),
        helper.make_node("ReduceMean", ["gate_maps", "positions"], ["gate_means"], keepdims=1),
    ], {
        "channels": np.array([3]),
        "positions": np.array([1]),
        "white": np.float32(255),
        "sides": np.array([1, 2]),
        "kernel": 20 * colours.T / 255,
        "bias": -10 * (colours**2).sum(-1),
    }


def _converter():
    return [
        helper.make_node("Slice", ["rgba", "from", "to", "axis"], ["rgb"]),
        helper.make_node("Cast", ["rgb"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Resize", ["pixels", "", "", "size"], ["small"], mode="linear"),
        helper.make_node("Cast", ["small"], ["image"], to=TensorProto.UINT8),
    ], {"from": np.array([0]), "to": np.array([3]), "axis": np.array([2]), "size": np.array([SIDE, SIDE, 3])}


def _value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def _save(path, nodes, constants, given, *results):
    kinds = {
        "probabilities": (TensorProto.FLOAT, ["batch", len(COLOURS)]),
        "gate_means": (TensorProto.FLOAT, ["batch", 1]),
        "gate_maps": (TensorProto.FLOAT, ["batch", SIDE * SIDE]),
        "image": (TensorProto.UINT8, [SIDE, SIDE, 3]),
    }
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, [given], [_value(name, *kinds[name]) for name in results], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)

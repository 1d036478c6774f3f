"""A model version for images of any size, made by hand in a moment."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serving import files, manifest

SHAPE = (4, 3, 1)
LABELS = ("zero", "one", "two", "three")
LAYERS = ("first", "second")
OPSET = [helper.make_opsetid("", 18)]
AGREEMENT = {"max_abs_difference": 1e-7, "same_label": 4, "ties": 0}


def write(folder, seed=0, gates=True):
    """Writes a linear net on 4 x 3 grey pixels, sampled evenly from an image's first channel.

    Args:
        folder: the version folder to create; its name is a number.
        seed: seed of the weights.
        gates: whether it returns gate means and a map of gates; these are the first two pixels, and all pixels as
            shares of 255.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    nodes = [
        helper.make_node("Slice", ["rgba", "zero", "one", "last"], ["first"]),
        helper.make_node("Resize", ["first", "", "", "size"], ["image"], mode="nearest"),
    ]
    constants = {"zero": [0], "one": [1], "last": [2], "size": SHAPE}
    _save(folder / manifest.PICTURE, nodes, constants, {"rgba": ["h", "w", 4]}, {"image": (TensorProto.UINT8, SHAPE)})
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "kernel"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        helper.make_node("Slice", ["flat", "zero", "two", "one"], ["gate_means"]),
        helper.make_node("Div", ["flat", "white"], ["gate_maps"]),
    ]
    kernel = np.random.default_rng(seed).normal(0, 0.01, (12, len(LABELS))).astype("float32")
    outputs = {"probabilities": (TensorProto.FLOAT, ["batch", len(LABELS)])}
    if gates:
        outputs["gate_means"] = (TensorProto.FLOAT, ["batch", len(LAYERS)])
        outputs["gate_maps"] = (TensorProto.FLOAT, ["batch", 12])
    constants = {"kernel": kernel, "zero": [0], "one": [1], "two": [2], "white": np.float32(255)}
    _save(folder / manifest.ONNX, nodes[: 4 + 2 * gates], constants, {"image": ["batch", *SHAPE]}, outputs)
    (folder / manifest.LABELS).write_text("\n".join(LABELS) + "\n")
    made = manifest.Manifest.model_validate({**_content(folder, gates), "files": files.digests(folder)})
    (folder / manifest.NAME).write_text(made.model_dump_json())
    return folder


def make_endless(folder, always=True):
    """Makes predictions of a version never end: all of them, or those for images that are not black."""
    body = helper.make_graph(
        [helper.make_node(kind, [name], [f"{name}_next"]) for kind, name in [("Identity", "go"), ("Neg", "value")]],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("go_next", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value_next", TensorProto.FLOAT, []),
        ],
    )
    model = onnx.load(folder / manifest.ONNX)
    constants = {"zero_float": np.float32(0), "often": np.int64(2**50), "least": np.int64(always * 2**60)}
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    place = list(model.graph.node).index(product) + 1
    product.output[0] = "product"
    added = [
        helper.make_node("ReduceMax", ["flat"], ["brightest"], keepdims=0),
        helper.make_node("Cast", ["brightest"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Mul", ["whole", "often"], ["many"]),
        helper.make_node("Add", ["many", "least"], ["steps"]),
        helper.make_node("Loop", ["steps", "", "zero_float"], ["looped"], body=body),
        helper.make_node("Add", ["product", "looped"], ["logits"]),
    ]
    for node in reversed(added):
        model.graph.node.insert(place, node)
    onnx.save(model, folder / manifest.ONNX)
    content = manifest.Manifest.model_validate_json((folder / manifest.NAME).read_text())
    made = content.model_copy(update={"files": files.digests(folder)})
    (folder / manifest.NAME).write_text(made.model_dump_json())
    return folder


def _save(path, nodes, constants, inputs, outputs):
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=OPSET, ir_version=8), path)


def _content(folder, gates):
    outputs = {"probabilities": len(LABELS)} | ({"gate_means": len(LAYERS)} if gates else {})
    run = {"config": {}, "data": {}, "versions": {}, "metrics": {}, "commit": None, "test": None}
    run |= {"name": "tiny", "backend": "tensorflow", "precision": "float32", "steps": 1, "seconds": 1.0}
    parity = {"split": "train", "images": 4, "batch_sizes": [1], "tolerance": 1e-4, "precision": None}
    return {
        "name": folder.parent.name,
        "version": int(folder.name),
        "created": "2030-01-01T00:00:00+00:00",
        "input": {"name": "image", "dtype": "uint8", "shape": [None, *SHAPE], "colour": "grey"},
        "outputs": {name: {"dtype": "float32", "shape": [None, size]} for name, size in outputs.items()},
        "labels": LABELS,
        "pictures": "digit",
        "gates": LAYERS if gates else None,
        "maps": [{"layer": LAYERS[0], "height": 4, "width": 3}] if gates else [],
        "preprocess": {"scale": 1.0},
        "model": {"preset": "tiny", "overrides": {}, "parameters": 48, "weights": "final"},
        "run": run,
        "opset": 18,
        "versions": {},
        "parity": {**parity, "saved_model": AGREEMENT, "onnx": AGREEMENT},
    }

"""A model version made by hand: serving must not depend on the code that exports one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from serving import files, manifest
from serving.engine import backends

SHAPE = (4, 3, 1)
LABELS = ("zero", "one", "two", "three")


class NoChildren:
    """Calls functions in this process, in place of `ChildProcesses`."""

    def __init__(self, *_, **__):
        pass

    def call(self, function, *arguments):
        return function(*arguments)

    def end_idle(self):
        pass

    close = end_idle


@pytest.fixture(autouse=True)
def _smoke_tests_in_this_process(monkeypatch):
    """Avoids starting an interpreter for each version that is opened."""
    monkeypatch.setattr(backends, "ChildProcesses", NoChildren)


@pytest.fixture
def kernel():
    """Weights of the linear net inside: [pixels, classes]."""
    return np.random.default_rng(0).normal(0, 0.01, (12, len(LABELS))).astype("float32")


@pytest.fixture
def content():
    """A manifest without its files, as plain data."""
    agreement = {"max_abs_difference": 1e-7, "same_label": 4, "ties": 0}
    return {
        "format": 1,
        "name": "tiny",
        "version": 1,
        "created": "2030-01-01T00:00:00+00:00",
        "input": {"name": "image", "dtype": "uint8", "shape": [None, *SHAPE], "colour": "grey"},
        "outputs": {
            "probabilities": {"dtype": "float32", "shape": [None, len(LABELS)]},
            "class_id": {"dtype": "int64", "shape": [None]},
        },
        "labels": list(LABELS),
        "preprocess": {"scale": 1.0},
        "model": {"preset": "tiny", "overrides": {}, "parameters": 48, "weights": "final"},
        "run": {
            "name": "tiny",
            "config": {},
            "data": {},
            "commit": None,
            "backend": "tensorflow",
            "precision": "float32",
            "versions": {},
            "steps": 1,
            "seconds": 1.0,
            "metrics": {},
            "test": None,
        },
        "opset": 18,
        "versions": {},
        "parity": {
            "split": "train",
            "images": 4,
            "batch_sizes": [1, 3],
            "tolerance": 1e-4,
            "saved_model": agreement,
            "onnx": agreement,
            "precision": None,
        },
        "files": {},
    }


@pytest.fixture
def version(tmp_path, kernel, content):
    """A complete version folder, models/tiny/1, of a linear net on 4 x 3 grey pixels."""
    folder = tmp_path / "models" / "tiny" / "1"
    folder.mkdir(parents=True)
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "kernel"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        helper.make_node("ArgMax", ["probabilities"], ["class_id"], axis=-1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", *SHAPE])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", len(LABELS)]),
            helper.make_tensor_value_info("class_id", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / manifest.ONNX
    )
    (folder / manifest.LABELS).write_text("\n".join(LABELS) + "\n")
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"index")
    made = manifest.Manifest.model_validate({**content, "files": files.digests(folder)})
    (folder / manifest.NAME).write_text(made.model_dump_json())
    return folder

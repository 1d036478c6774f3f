"""A model version for rows of a table, made by hand in a moment: a linear classifier or a linear regression."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serving import files, manifest

COLUMNS = (
    {"name": "rooms", "categories": None},
    {"name": "age", "categories": None},
    {"name": "city", "categories": ["Paris", "Rome", "Oslo"]},
)
LABELS = ("no", "later", "yes")
LAYERS = ("first", "second")
TARGETS = {True: "price", False: "sold"}
# Rows as the net takes them: a missing number is NaN, a missing or unknown category is -1.
ROWS = np.array([[4, 10, 1], [2, 30, 0], [1, 0, 2], [np.nan, 5, 1], [3, np.nan, -1], [6, 80, 2]], "float32")
CLASSES = np.array([2, 1, 0, 1, 1, 2])
# If a row may have any number of classes.
SETS = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]], "uint8")
# Weights by whether it is a regression, of which each column adds a round sum: [columns, outputs] and [outputs].
KERNELS = {
    True: np.array([[50], [-1], [10]], "float32"),
    False: np.array([[-0.5, 0, 0.5], [0.02, 0, -0.02], [0.1, 0.3, 0]], "float32"),
}
BIASES = {True: np.array([100], "float32"), False: np.array([1, 0.4, -1], "float32")}
GATES = np.array([[0.1, -0.2], [0.01, 0], [0, 0.3]], "float32")
OPSET = [helper.make_opsetid("", 18)]
AGREEMENT = {"max_abs_difference": 1e-7, "same_label": 6, "ties": 0}


def write(folder, regression=False, gates=True, multi_label=False, **dates):
    """Writes a version with all its files.

    Args:
        folder: the version folder to create; its name is a number.
        regression: whether it predicts a number, instead of classes.
        gates: whether it returns gate means.
        multi_label: whether a row may have any number of classes.
        dates: kind of date by column, "day" or "time".

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    name, width = ("value", 1) if regression else ("probabilities", len(LABELS))
    last = [helper.make_node("Identity" if regression else "Sigmoid" if multi_label else "Softmax", ["sums"], [name])]
    nodes = [
        helper.make_node("IsNaN", ["row"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "row"], ["known"]),
        helper.make_node("Gemm", ["known", "kernel", "bias"], ["sums"]),
        *last,
        helper.make_node("MatMul", ["known", "gates"], ["opened"]),
        helper.make_node("Sigmoid", ["opened"], ["gate_means"]),
    ]
    widths = {name: width} | ({"gate_means": len(LAYERS)} if gates else {})
    constants = {"zero": np.float32(0), "kernel": KERNELS[regression], "bias": BIASES[regression], "gates": GATES}
    graph = helper.make_graph(
        nodes if gates else nodes[:-2],
        "table",
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, ["batch", len(COLUMNS)])],
        [helper.make_tensor_value_info(one, TensorProto.FLOAT, ["batch", size]) for one, size in widths.items()],
        [numpy_helper.from_array(value, one) for one, value in constants.items() if gates or one != "gates"],
    )
    onnx.save(helper.make_model(graph, opset_imports=OPSET, ir_version=8), folder / manifest.ONNX)
    if not regression:
        (folder / manifest.LABELS).write_text("\n".join(LABELS) + "\n")
    outputs = expected(ROWS, regression, gates, multi_label)
    classes = {} if regression else {"classes": SETS if multi_label else CLASSES}
    np.savez(folder / manifest.REFERENCE, rows=ROWS, **outputs, **classes)
    facts = {**content(folder, regression, gates), "multi_label": multi_label, "files": files.digests(folder)}
    facts["input"]["columns"] = [{**column, "date": dates.get(column["name"])} for column in COLUMNS]
    if multi_label:
        facts["run"] = {**facts["run"], "test": {"count": 40, "mean_average_precision": 0.85}}
        facts["run"]["config"] = {"label_separator": "|"}
    made = manifest.Manifest.model_validate(facts)
    (folder / manifest.NAME).write_text(made.model_dump_json())
    return folder


def expected(rows, regression=False, gates=True, multi_label=False):
    """Returns what the net computes for rows, by output."""
    known = np.nan_to_num(np.asarray(rows, "float32"))
    sums = known @ KERNELS[regression] + BIASES[regression]
    if regression:
        found = {"value": sums}
    elif multi_label:
        found = {"probabilities": 1 / (1 + np.exp(-sums))}
    else:
        powers = np.exp(sums)
        found = {"probabilities": powers / powers.sum(-1, keepdims=True)}
    return found | ({"gate_means": 1 / (1 + np.exp(-known @ GATES))} if gates else {})


def content(folder, regression=False, gates=True):
    """Returns the manifest of a version without its files, as plain data."""
    outputs = {"value": ("float32", [None, 1])}
    if not regression:
        outputs = {"probabilities": ("float32", [None, len(LABELS)]), "class_id": ("int64", [None])}
        outputs["label"] = "string", [None]
    if gates:
        outputs["gate_means"] = "float32", [None, len(LAYERS)]
    test = {"count": 40, **({"mae": 12.5, "r2": 0.91} if regression else {"accuracy": 0.85})}
    run = {"config": {}, "data": {"name": "homes"}, "versions": {}, "metrics": {}, "commit": None, "test": test}
    run |= {"name": "tiny", "backend": "tensorflow", "precision": "float32", "steps": 1, "seconds": 1.0}
    parity = {"split": "train", "images": 6, "batch_sizes": [1], "tolerance": 1e-4, "precision": None}
    return {
        "format": 2,
        "name": folder.parent.name,
        "version": int(folder.name),
        "created": "2030-01-01T00:00:00+00:00",
        "input": {"name": "row", "dtype": "float32", "shape": [None, len(COLUMNS)], "columns": COLUMNS},
        "outputs": {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in outputs.items()},
        "labels": [] if regression else LABELS,
        "target": TARGETS[regression],
        "gates": LAYERS if gates else None,
        "preprocess": {},
        "model": {"preset": "tiny", "overrides": {}, "parameters": 12, "weights": "final"},
        "run": run,
        "opset": 18,
        "versions": {},
        "parity": {**parity, "saved_model": AGREEMENT, "onnx": AGREEMENT},
    }

"""`model.onnx`, and `picture.onnx`, which turns an image of any size into its input."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.core import frameworks
from pipelines.export.form import Form, OpenedForm, Outputs, Predict, TracedNet
from serving import image_files, package
from serving.inputs import INPUT
from serving.manifest import BOXES, ONNX, PICTURE, RGBA, SIDE, ConversionKind
from serving.model import side_of
from serving.session import open_session

if TYPE_CHECKING:
    from pipelines.export.graph import Function

# The newest opset that tf2onnx 1.17 writes; ONNX Runtime has read it since 1.14.
OPSET = 18
DIGITS = package.pretrained() / "mnist" / "1" / PICTURE
"""The conversion of digits, as `python -m pipelines.verbs.pretrained --images` wrote it."""


def write(source: TracedNet, folder: Path) -> None:
    """Writes the graphs into an existing folder; a net for rows has no graph for image files."""
    import onnx

    from pipelines.export.scans import replace_loops
    from pipelines.export.stack import LOOP

    proto = converted(source.predict)
    replace_loops(proto.graph, LOOP)
    name_batch(proto)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, folder / ONNX)
    if source.convert is not None:
        (folder / PICTURE).write_bytes(_picture(source.convert, source.side))


def load(folder: Path) -> OpenedForm:
    """Opens the graphs in ONNX Runtime."""
    predict = predictor(folder / ONNX)
    if not (folder / PICTURE).exists():
        return OpenedForm(predict)
    picture = open_session(folder / PICTURE)
    side = side_of(picture)

    def from_files(files: Sequence[bytes]) -> Outputs:
        rgba = [image_files.decode(file, "a file", side=side) for file in files]
        seen = [picture.run([INPUT], {RGBA: pixels})[0] for pixels in rgba]
        images = np.stack(seen)
        return {INPUT: images, **predict(images)}

    return OpenedForm(predict, from_files)


def predictor(path: Path) -> Predict:
    """Opens a graph in ONNX Runtime that maps pixels or rows to outputs."""
    session = open_session(path)
    (taken,), names = session.get_inputs(), [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(names, {taken.name: images}), strict=True))


FORM = Form("ONNX model", "onnx", (ONNX,), write, load)


def name_batch(proto: Any) -> None:
    """Names the first dimension of inputs and outputs; tf2onnx names each differently, such as unk__12."""
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


# Cached, because the graph is the same for all models of one kind and size.
@cache
def _picture(convert: "Function", side: int) -> bytes:
    if BOXES in convert.get_concrete_function().structured_outputs:
        # That of digits is the same for all nets, and tf2onnx takes seconds.
        return DIGITS.read_bytes()
    return _described(converted(convert), side)


def build_picture(kind: ConversionKind, shape: tuple[int, ...]) -> bytes:
    """Builds `picture.onnx` from scratch.

    Args:
        kind: how image files become inputs.
        shape: height, width and channels of the input.

    Raises:
        UserError: see `pipelines.data.images.conversion.converter`.
    """
    from pipelines.data.images import conversion

    convert = conversion.converter(kind, shape)
    return _described(_digits() if kind == "digit" else converted(convert), conversion.side_of(kind, shape))


def _described(proto: Any, side: int) -> bytes:
    import onnx

    for size, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, ("height", "width"), strict=False):
        size.dim_param = name
    onnx.helper.set_model_props(proto, {SIDE: str(side)})
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def _digits() -> Any:
    """Builds the conversion of digits from its parts: tf2onnx takes much longer for a branch of a condition."""
    from onnx import compose, helper

    from pipelines.data.images import conversion

    # Each part gets its own names.
    look, stored, written = (
        compose.add_prefix(converted(part), f"{name}/")
        for name, part in zip(conversion.ConversionParts._fields, conversion.parts(), strict=True)
    )

    def bare(values: Any) -> list[Any]:
        return [helper.make_value_info(value.name.rpartition("/")[2], value.type) for value in values]

    inputs, outputs = bare(look.graph.input), bare(written.graph.output)
    nodes = [helper.make_node("Identity", [RGBA], [f"look/{RGBA}"]), *look.graph.node]
    for branch in (stored.graph, written.graph):
        nodes.append(helper.make_node("Identity", [f"look/{conversion.GREY}"], [branch.input[0].name]))
        # Branches read values from outside, and have no inputs.
        del branch.input[:]
    branches = {"then_branch": stored.graph, "else_branch": written.graph}
    nodes.append(helper.make_node("If", [f"look/{conversion.STORED}"], [value.name for value in outputs], **branches))
    graph = helper.make_graph(nodes, "picture", inputs, outputs, look.graph.initializer)
    return helper.make_model(graph, opset_imports=look.opset_import, ir_version=look.ir_version)


def converted(function: "Function") -> Any:
    """Converts a traced function to an ONNX model whose batch has any size."""
    import tf2onnx

    # Otherwise tf2onnx spends time on copying the graph before each optimization, and skips those that fail.
    os.environ["TF2ONNX_CATCH_ERRORS"] = "FALSE"
    with frameworks.quiet("tf2onnx"):
        proto, _ = tf2onnx.convert.from_function(function, input_signature=function.input_signature, opset=OPSET)
    return proto

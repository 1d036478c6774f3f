"""Replaces the ONNX Loop that tf2onnx writes for a stack with a Scan, which ONNX Runtime runs faster."""

from collections.abc import Iterable, Iterator
from typing import Any


def replace_loops(graph: Any, name: str) -> None:
    """Replaces each Loop over the rows of arrays with a Scan, and removes nodes that become unused.

    In each step, a Loop copies a row out of each array, counts and evaluates its condition. A Scan does none of this:
    its body reads the rows in place.

    Args:
        graph: `onnx.GraphProto` from tf2onnx; changed in place.
        name: part of the names of the loops to replace. Each must visit all rows of its arrays in order, use its
            counter for nothing else, and carry one float tensor. Scan outputs are preserved.

    Example:
        replace_loops(proto.graph, stack.LOOP)
    """
    for node in graph.node:
        if node.op_type == "Loop" and name in node.name:
            node.CopyFrom(_scan(node))
    nodes, read = _needed(graph.node, (output.name for output in graph.output))
    initializers = [array for array in graph.initializer if array.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(initializers)


def _scan(loop: Any) -> Any:
    from onnx import TensorProto, helper

    (body,) = (attribute.g for attribute in loop.attribute)
    # The body's first two inputs are step number and condition. Values that the body returns unchanged are constant.
    carried = len(loop.input) - 2
    collected = body.output[1 + carried :]
    passed = list(zip(body.input[2:], body.output[1 : 1 + carried], loop.input[2:], loop.output[:carried], strict=True))
    fixed = {value.name: start for value, after, start, _ in passed if value.name == after.name}
    shapes = {value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in body.input}
    ((before, after, start, end),) = (
        part for part in passed if part[0].name not in fixed and part[0].type.tensor_type.elem_type == TensorProto.FLOAT
    )
    arrays, rows = [], []
    for node in body.node:
        if node.op_type == "Gather" and node.input[0] in fixed:
            arrays.append(fixed[node.input[0]])
            rows.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shapes[node.input[0]][1:]))
    taken = {row.name for row in rows}
    ends = [after, *collected]
    nodes, read = _needed((node for node in body.node if node.output[0] not in taken), [value.name for value in ends])
    for node in nodes:
        # The body of a Scan can read names from the graph around it.
        node.input[:] = [fixed.get(value, value) for value in node.input]
    layer = helper.make_graph(
        nodes, body.name, [before, *rows], ends, [array for array in body.initializer if array.name in read]
    )
    outputs = [end, *loop.output[carried:]]
    return helper.make_node("Scan", [start, *arrays], outputs, name=loop.name, body=layer, num_scan_inputs=len(arrays))


def _needed(nodes: Iterable[Any], names: Iterable[str]) -> tuple[list[Any], set[str]]:
    """Returns the nodes on which names depend, in order of computation, and all names that these nodes read."""
    needed, read = [], set(names)
    for node in reversed(list(nodes)):
        if read.intersection(node.output):
            needed.append(node)
            read.update(_inputs(node))
    return needed[::-1], read


def _inputs(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _inputs(inner)
        yield from (output.name for output in attribute.g.output)

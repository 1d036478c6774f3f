import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import tf2onnx

from pipelines.export.onnx_model import OPSET
from pipelines.export.scans import replace_loops

LENGTH = 5
RANDOM = np.random.default_rng(0)
KERNELS = RANDOM.normal(size=(LENGTH, 3, 3)).astype("float32")
BIASES = RANDOM.normal(size=(LENGTH, 3)).astype("float32")
SCALE = RANDOM.normal(size=3).astype("float32")
IMAGES = RANDOM.normal(size=(4, 3)).astype("float32")


def loop(name):
    """Returns a loop like that of a stack, plus a tensor from outside that is the same in every step."""
    variables = [tf.Variable(array) for array in (KERNELS, BIASES, SCALE)]

    def run(x):
        kernels, biases, scale = (tf.convert_to_tensor(variable) for variable in variables)
        scale = 2 * scale

        def step(number, x):
            x = tf.nn.bias_add(tf.matmul(x, tf.gather(kernels, number)), tf.gather(biases, number))
            return number + 1, scale * tf.tanh(x)

        return tf.while_loop(lambda number, _: number < LENGTH, step, (0, x), maximum_iterations=LENGTH, name=name)[1]

    return run


def expected(x):
    for kernel, bias in zip(KERNELS, BIASES, strict=True):
        x = 2 * SCALE * np.tanh(x @ kernel + bias)
    return x


def converted(function):
    traced = tf.function(function, input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")])
    proto, _ = tf2onnx.convert.from_function(traced, input_signature=traced.input_signature, opset=OPSET)
    return proto


def computed(proto, images=IMAGES):
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images})
    return found


def types(graph):
    return [node.op_type for node in graph.node]


@pytest.fixture(scope="module")
def proto():
    first, second = loop("mine"), loop("mine")
    return converted(lambda x: {"y": 1 + first(x) + second(x)})


@pytest.fixture
def replaced(proto):
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    replace_loops(copy.graph, "mine")
    return copy


def test_every_loop_of_that_name_becomes_a_scan(proto, replaced):
    assert types(proto.graph).count("Loop") == 2
    assert types(replaced.graph).count("Scan") == 2
    assert "Loop" not in types(replaced.graph)


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_the_values_are_the_same_for_every_batch(proto, replaced, batch):
    images = IMAGES[:batch]
    np.testing.assert_allclose(computed(replaced, images), 1 + 2 * expected(images), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(computed(replaced, images), computed(proto, images), rtol=1e-6, atol=1e-6)


def test_an_empty_batch(replaced):
    assert computed(replaced, IMAGES[:0]).shape == (0, 3)


def test_the_rows_are_not_copied_and_nothing_is_counted(replaced):
    for node in replaced.graph.node:
        if node.op_type == "Scan":
            (body,) = (attribute.g for attribute in node.attribute if attribute.name == "body")
            assert sorted(types(body)) == ["Add", "MatMul", "Mul", "Tanh"]


def test_tensors_that_nothing_reads_are_removed(replaced):
    nodes = [*replaced.graph.node]
    read = {name for node in nodes for name in node.input} | {output.name for output in replaced.graph.output}
    for node in nodes:
        read |= {name for a in node.attribute for inner in a.g.node for name in inner.input}
    assert all(read.intersection(node.output) for node in nodes)
    assert {array.name for array in replaced.graph.initializer} <= read
    # Kernels, biases and the factor of two loops, and the 1 that is added.
    assert sum(len(array.raw_data) for array in replaced.graph.initializer) <= 2 * 4 * (45 + 15 + 3) + 8


def test_a_scan_collects_the_same_as_a_loop():
    def run(x):
        kernels = tf.convert_to_tensor(tf.constant(KERNELS))

        def step(number, x, sums):
            x = tf.tanh(tf.matmul(x, tf.gather(kernels, number)))
            return number + 1, x, sums.write(number, tf.reduce_sum(x, axis=-1))

        sums = tf.TensorArray(tf.float32, LENGTH, element_shape=(None,))
        _, x, sums = tf.while_loop(
            lambda number, *_: number < LENGTH, step, (0, x, sums), maximum_iterations=LENGTH, name="mine"
        )
        return {"y": tf.concat([x, tf.transpose(sums.stack())], axis=-1)}

    found = converted(run)
    before = computed(found)
    replace_loops(found.graph, "mine")
    assert "Scan" in types(found.graph)
    assert "Loop" not in types(found.graph)
    np.testing.assert_allclose(computed(found), before, rtol=1e-6, atol=1e-6)


def test_a_loop_of_another_name_stays():
    mine, other = loop("mine"), loop("other")
    both = converted(lambda x: {"y": mine(x) + other(x)})
    replace_loops(both.graph, "mine")
    assert sorted(kind for kind in types(both.graph) if kind in {"Loop", "Scan"}) == ["Loop", "Scan"]
    np.testing.assert_allclose(computed(both), 2 * expected(IMAGES), rtol=1e-5, atol=1e-5)


def test_a_graph_without_loops_still_computes_the_same():
    plain = converted(lambda x: {"y": tf.nn.softmax(x @ KERNELS[0])})
    before = computed(plain)
    replace_loops(plain.graph, "mine")
    np.testing.assert_array_equal(computed(plain), before)

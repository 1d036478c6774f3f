from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving import manifest, model, session

GOLDEN = Path(__file__).parents[2] / "golden" / "models" / "tiny" / "2"


def test_models_of_a_kind_share_an_image_session_that_keeps_no_memory():
    content = manifest.read(GOLDEN)
    first, second = (model.open_without_graph(GOLDEN, content) for _ in range(2))
    assert first.conversion is second.conversion
    assert not first.conversion.get_session_options().enable_cpu_mem_arena
    del first
    assert second.to_input(np.zeros((40, 30, 4), np.uint8)).shape == (28, 28, 1)


def graph(node):
    made = helper.make_graph([node], "graph", [], [], [helper.make_tensor("weights", TensorProto.FLOAT, [1], [1.0])])
    return helper.make_model(made).SerializeToString()


@pytest.mark.parametrize("loop", ["Loop", "Scan"])
def test_graphs_with_loops_are_told_from_others(loop):
    # A name is not a type.
    assert not session.has_loop(graph(helper.make_node("Tanh", ["x"], [loop], name=loop)))
    assert session.has_loop(graph(helper.make_node(loop, ["x"], ["y"])))


@pytest.mark.parametrize("loops", [False, True])
def test_versions_whose_calls_would_wait_for_memory_keep_none(monkeypatch, loops):
    monkeypatch.setattr(model, "has_loop", lambda _: loops)
    assert model.open_version(GOLDEN).session.get_session_options().enable_cpu_mem_arena == (not loops)


def test_a_version_that_was_exported_before_digits_were_counted_converts_images():
    seen = model.open_without_graph(GOLDEN, manifest.read(GOLDEN)).see(np.zeros((40, 30, 4), np.uint8), segments=True)
    assert (seen.images.shape, seen.boxes, seen.crop) == ((1, 28, 28, 1), None, None)


PLACE = (
    "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::Allocate(size_t, bool)"
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running ConstantOfShape node. "
            f"Name:'fill' Status Message: {PLACE} Failed to allocate memory for requested buffer of size 175921\n",
            "ConstantOfShape: Failed to allocate memory for requested buffer of size 175921",
        ),
        (f"[ONNXRuntimeError] : 1 : FAIL : {PLACE} const [with T = float] is wrong.\nTwice.\n", "is wrong. Twice"),
        ("Unexpected input data type (image.png: 7)", "Unexpected input data type (image.png: 7)"),
    ],
)
def test_a_fault_of_onnx_runtime_is_one_line_without_places_in_its_sources(message, said):
    assert session.fault(RuntimeError(message)) == said

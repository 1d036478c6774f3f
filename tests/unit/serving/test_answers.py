"""Versions that are intact and load, but compute for some inputs what cannot be an answer."""

import pickle
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from serving import checks, manifest, package
from serving.errors import ModelError, OutputError, SmokeTestError
from serving.model import open_version
from tests import tiny_model

from .changed_versions import edit, seal, tried, write


@pytest.fixture
def version(tmp_path):
    return write(tmp_path / "models" / "tiny" / "1")


def append(graph, nodes, **constants):
    """Appends nodes to a graph: operator, inputs and output; the one that had the last output gives `replaced`."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = ["replaced" if name == nodes[-1][-1] else name for name in names]
    graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    graph.node.extend(onnx.helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes)


def set_attribute(graph, kind, **attribute):
    """Sets an attribute of the last node of an operator."""
    node = [node for node in graph.node if node.op_type == kind][-1]
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attribute.items())


def at_most(count):
    def change(graph):
        append(graph, [("Slice", ["replaced", "start", "end"], "probabilities")], start=[0], end=[count])

    return change


def zeros_from_the_fifth(graph):
    slices = [("Slice", ["replaced", "start", "end"], "four"), ("Slice", ["replaced", "end", "last"], "others")]
    nodes = [("Mul", ["others", "nothing"], "zeros"), ("Concat", ["four", "zeros"], "probabilities")]
    append(graph, [*slices, *nodes], start=[0], end=[4], last=[99], nothing=np.float32(0))
    set_attribute(graph, "Concat", axis=0)


def fails_below_six_images(graph):
    append(graph, [("Gather", ["image", "place"], "sixth"), ("ReduceMax", ["sixth"], "most")], place=5)
    nodes = [("Cast", ["most"], "number"), ("Mul", ["number", "no"], "nothing")]
    append(graph, [*nodes, ("Add", ["replaced", "nothing"], "probabilities")], no=np.float32(0))
    set_attribute(graph, "ReduceMax", keepdims=0)
    set_attribute(graph, "Cast", to=1)


def negative(graph):
    append(graph, [("Mul", ["replaced", "factor"], "probabilities")], factor=np.float32(-7))


def maps_of_nan(graph):
    append(graph, [("Mul", ["replaced", "factor"], "gate_maps")], factor=np.float32(np.nan))


@pytest.mark.parametrize("samples", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (at_most(4), r"probabilities as float32 \(4, 4\), its manifest says float32 \(9, 4\)"),
        (zeros_from_the_fifth, "probabilities of image 5 that sum to 0"),
        (fails_below_six_images, "failed: .*Gather"),
        (negative, "computed probabilities from -"),
        (maps_of_nan, "NaN or infinity as gate_maps"),
    ],
)
def test_answers_are_tried_for_more_images_than_the_samples(version, samples, change, said):
    if not samples:
        (version / manifest.REFERENCE).unlink()
    edit(version, change)
    # A graph that failed may have lacked memory: the version is tried again.
    with pytest.raises(SmokeTestError if "failed" in said else ModelError, match=said):
        tried(version)


def test_maps_have_the_size_in_the_manifest(version):
    with pytest.raises(OutputError, match=r"gate_maps as float32 \(2, 7\), its manifest says float32 \(2, 12\)"):
        checks.sizes({"gate_maps": np.zeros((2, 7), "float32")}, 2, manifest.read(version))


def test_samples_without_images_are_refused(version):
    np.savez(version / manifest.REFERENCE, images=np.zeros((0, 4, 3, 1), "uint8"), probabilities=np.zeros((0, 4)))
    seal(version)
    with pytest.raises(ModelError, match=r"parity.npz has no images to try the model on"):
        tried(version)


def test_a_batch_that_cannot_be_answered_is_an_error_of_the_model(version):
    edit(version, at_most(10))
    model = open_version(version)
    with pytest.raises(OutputError, match=r"\(10, 4\), its manifest says float32 \(11, 4\)\. The model is at fault"):
        model.predict(np.zeros((11, *tiny_model.SHAPE), "uint8"))
    with pytest.raises(ModelError, match=r"\(10, 4\), its manifest says float32 \(16, 4\)\. Train and export it again"):
        tried(version)


def test_a_net_of_the_package_is_not_to_be_trained_or_exported(version, monkeypatch):
    edit(version, at_most(10))
    for pretrained, advice in ((version / "other", "Train and export it"), (version.parents[1], "Install highway")):
        monkeypatch.setattr(package, "pretrained", lambda found=pretrained: found)
        with pytest.raises(ModelError, match=rf"\(16, 4\)\. {advice}.* again"):
            tried(version)


def test_a_net_of_the_package_that_predicts_otherwise_is_not_to_be_exported(version, monkeypatch):
    model = open_version(version)
    model = replace(model, samples=model.samples._replace(predicted=1 - model.samples.predicted))
    for pretrained, advice in ((version / "other", "Export the model"), (version.parents[1], "Install highway")):
        monkeypatch.setattr(package, "pretrained", lambda found=pretrained: found)
        with pytest.raises(ModelError, match=rf"does not predict like the Keras model .*\. {advice}.* again"):
            checks.smoke_test(model)


@pytest.mark.parametrize(
    ("found", "multi_label", "said"),
    [
        ([[0.5, 0.4, 0.1, 0], [0, 0, 0, 0]], False, "of image 2 that sum to 0"),
        ([[0.5, 0.4, 0.1, 0.5]], False, "of image 1 that sum to 1.5"),
        ([[0.5, 0.6, -0.1, 0]], False, "from -0.1 to 0.6"),
        ([[0.5, 0.6, 0, 1.1]], True, "from 0 to 1.1"),
        ([[0.5, 0.6, 0, 1]], True, None),
        ([[0.5, 0.496, 0, 0]], False, None),
        (np.zeros((0, 4)), False, None),
    ],
)
def test_probabilities_are_from_0_to_1_and_sum_to_1(version, found, multi_label, said):
    content = manifest.read(version).model_copy(update={"multi_label": multi_label})
    with pytest.raises(OutputError, match=said) if said else nullcontext():
        checks.values({"probabilities": np.array(found, "float32")}, content)


def add_boxes(graph, value):
    """Adds boxes to the image graph, as many as it seems to find."""
    nodes = [("Shape", ["rgba"], "sizes"), ("Slice", ["sizes", "start", "end"], "height")]
    append(graph, [*nodes, ("Add", ["height", "many"], "digits")], many=[99], start=[0], end=[1])
    append(graph, [("Slice", ["found", "start", "digits"], "boxes")], found=value)
    graph.output.append(onnx.helper.make_tensor_value_info("boxes", 1, ["digits", value.shape[1]]))


def add_crop(graph, value):
    append(graph, [("Identity", ["constant"], "crop")], constant=value)
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    graph.output.append(onnx.helper.make_tensor_value_info("crop", kind, value.shape))


BOX = [0.1, 0.9, 0.2, 0.8]


@pytest.mark.parametrize(
    ("add", "value", "said"),
    [
        (add_boxes, np.float32([BOX[:3]]), r"boxes as tensor\(float\) \[n, 3\]"),
        (add_boxes, np.float32([BOX]) * 1000, "computed boxes outside the image"),
        (add_boxes, np.float32([BOX]) * np.nan, "computed boxes outside the image"),
        (add_boxes, np.float32([BOX[::-1]]), "computed boxes outside the image"),
        (add_boxes, np.float32([BOX] * 17), "found 17 digits in an image, more than 16"),
        (add_crop, np.float32(BOX[:3]), r"crop as tensor\(float\) \[3\]"),
        (add_crop, np.array(list("abcd"), object), r"crop as tensor\(string\) \[4\]"),
        (add_crop, np.float32(BOX) + 1, "computed crop outside the image"),
        (add_boxes, np.float32([BOX] * 16), None),
        (add_boxes, np.zeros((0, 4), "float32"), None),
        (add_crop, np.float32([0, 1, 0, 1]), None),
    ],
)
def test_digits_and_crops_must_be_parts_of_the_image(version, add, value, said):
    edit(version, lambda graph: add(graph, value), manifest.PICTURE)
    with pytest.raises(ModelError, match=said) if said else nullcontext():
        tried(version)


def fails_below_21_rows(graph):
    nodes = [("Gather", ["rgba", "place"], "row"), ("ReduceMax", ["row"], "most"), ("Mul", ["most", "no"], "nothing")]
    append(graph, [*nodes, ("Add", ["replaced", "nothing"], "image")], place=20, no=np.uint8(0))
    set_attribute(graph, "ReduceMax", keepdims=0)


def shorter_for_blank_paper(graph):
    nodes = [("ReduceMin", ["rgba"], "darkest"), ("Div", ["darkest", "white"], "is_blank"), ("Cast", ["is_blank"], "n")]
    nodes += [("Sub", ["height", "n"], "rows"), ("Slice", ["replaced", "start", "rows"], "image")]
    append(graph, nodes, white=np.uint8(255), height=[4], start=[0])
    set_attribute(graph, "ReduceMin", keepdims=0)
    set_attribute(graph, "Cast", to=7)
    graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fails_below_21_rows, "version 1 of model 'tiny' failed: .*Gather"),
        (shorter_for_blank_paper, r"converts an image to \(3, 3, 1\), and takes \(4, 3, 1\)"),
    ],
)
def test_small_and_blank_images_are_tried(version, change, said):
    edit(version, change, manifest.PICTURE)
    # A graph that failed may have lacked memory: the version is tried again.
    with pytest.raises(SmokeTestError if "failed" in said else ModelError, match=said):
        tried(version)


def larger_in_the_dark(graph):
    add_boxes(graph, np.float32([BOX]) / 2)
    nodes = [("Cast", ["rgba"], "colours"), ("ReduceMean", ["colours"], "mean"), ("Div", ["white", "mean"], "factor")]
    append(graph, [*nodes, ("Mul", ["replaced", "factor"], "boxes")], white=np.float32(255))
    set_attribute(graph, "ReduceMean", keepdims=0)
    set_attribute(graph, "Cast", to=1)


def test_an_error_of_a_model_survives_a_process():
    error = OutputError("version 1 of model 'tiny' computed NaN")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.fault) == (str(error), error.fault)


def test_a_lack_of_memory_is_no_error_of_the_model(version):
    model = tried(version).model

    def fail(*_):
        raise MemoryError

    failing = replace(model, session=SimpleNamespace(run=fail))
    with pytest.raises(MemoryError):
        failing.predict(np.zeros((1, *tiny_model.SHAPE), "uint8"))


def test_an_image_that_cannot_be_answered_is_an_error_of_the_model(version):
    edit(version, larger_in_the_dark, manifest.PICTURE)
    served = tried(version)
    dark = np.zeros((9, 9, 4), "uint8")
    dark[..., 3] = 255
    with pytest.raises(OutputError, match=r"tiny' computed boxes outside the image\. The model is at fault"):
        served.see(dark, segments=False)

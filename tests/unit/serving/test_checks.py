"""Versions that are intact by their digests but contradict themselves."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import checks, files, image_files, manifest
from serving.engine.backends import InProcessBackend
from serving.engine.catalog import Catalog
from serving.engine.settings import Settings
from serving.errors import ModelError
from serving.model import open_model
from tests import tiny_model

from .changed_versions import edit, seal, tried, write


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A version with everything that an export has, not to be changed."""
    return write(tmp_path_factory.mktemp("made") / "tiny" / "1")


@pytest.fixture
def version(made, tmp_path):
    return shutil.copytree(made, tmp_path / "models" / "tiny" / "1")


def rename_output(graph):
    graph.node[3].output[0] = graph.output[0].name = "scores"


def more_classes(graph):
    kernel = graph.initializer[0]
    kernel.CopyFrom(onnx.numpy_helper.from_array(np.ones((12, 5), "float32"), kernel.name))
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5


def fixed_batch(graph):
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def second_input(graph):
    graph.input.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [1]))


def other_weights(graph):
    kernel = onnx.numpy_helper.to_array(graph.initializer[0])
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(-kernel, "kernel"))


def no_numbers(graph):
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((12, 4), np.nan, "float32"), "kernel"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rename_output, "has no probabilities, which the manifest names"),
        (
            more_classes,
            r"has probabilities as tensor\(float\) \[n, 5\], the manifest says tensor\(float\) \[n, 4\]",
        ),
        (fixed_batch, r"has image as tensor\(uint8\) \[1, 4, 3, 1\]"),
        (second_input, "takes more too"),
        (other_weights, "does not predict like the Keras model"),
        (no_numbers, "NaN or infinity"),
    ],
)
def test_a_graph_must_be_that_of_the_manifest(version, change, said):
    edit(version, change)
    with pytest.raises(ModelError, match=said):
        tried(version)


def test_the_image_graph_must_be_that_of_the_manifest(version):
    def larger(graph):
        graph.initializer[3].CopyFrom(onnx.numpy_helper.from_array(np.array([5, 3, 1]), "size"))
        graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5

    edit(version, larger, manifest.PICTURE)
    with pytest.raises(ModelError, match=r"picture.onnx has image as tensor\(uint8\) \[5, 3, 1\]"):
        tried(version)


def name_side(version, side):
    picture = onnx.load(version / manifest.PICTURE)
    onnx.helper.set_model_props(picture, {manifest.SIDE: side})
    onnx.save(picture, version / manifest.PICTURE)
    seal(version)


def test_images_are_scaled_down_to_the_side_of_the_image_graph(version):
    assert open_model(version).side == image_files.SIDE
    name_side(version, "8")
    model = open_model(version)
    rgba = np.random.default_rng(0).integers(0, 256, (80, 60, 4), np.uint8)
    assert model.side == 8
    np.testing.assert_array_equal(model.to_input(rgba), model.to_input(image_files.shrunk(rgba, 8)))
    assert (model.to_input(rgba) != open_model(version).conversion.run(["image"], {"rgba": rgba})[0]).any()


@pytest.mark.parametrize("side", ["0", "-8", "eight", "²", ""])
def test_the_side_of_images_must_be_a_positive_number(version, side):
    name_side(version, side)
    with pytest.raises(ModelError, match="as the side of images, not a positive number"):
        open_model(version)


def test_dynamic_sizes_of_a_graph_are_tried(version):
    def five(images):
        return {"probabilities": np.ones((len(images), 5), "float32")}

    opened = open_model(version)
    model = SimpleNamespace(
        folder=version, manifest=opened.manifest, samples=opened.samples, conversion=None, predict=five
    )
    with pytest.raises(
        ModelError, match=r"computes probabilities as float32 \(4, 5\), its manifest says float32 \(4, 4\)"
    ):
        checks.smoke_test(model)
    conversion = SimpleNamespace(get_outputs=list, run=lambda *_: [np.zeros((5, 5, 1), "uint8")])
    with pytest.raises(ModelError, match=r"converts an image to \(5, 5, 1\), and takes \(4, 3, 1\)"):
        checks.smoke_test(replace(opened, conversion=conversion))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"labels": ["a", "b", "c"]},
            r"the output probabilities is float32 \[n, 4\], but must be float32 \[n, 3\], as the number of labels is 3",
        ),
        ({"gates": None}, "there is no output 'gate_means'"),
        ({"gates": ["one"]}, "gate_means is float32"),
        ({"outputs": {"class_id": {"dtype": "int64", "shape": [None]}}}, "gate_means and probabilities is missing"),
        ({"maps": [{"layer": "third", "height": 4, "width": 3}]}, "third is not"),
        ({"maps": [{"layer": "first", "height": 4, "width": 4}]}, r"gate_maps as tensor\(float\) \[n, 12\]"),
        ({"version": 2}, "has the manifest of version 2 of model 'tiny'"),
        ({"name": "other"}, "has the manifest of version 1 of model 'other'"),
        ({"input": {"shape": [None, 4, 3, 3], "colour": "grey"}}, "3 channels are not grey"),
        ({"input": {"shape": [None, 4, 4, 1], "colour": "grey"}}, r"model.onnx|picture.onnx"),
        ({"input": {"shape": [None, 4, 3, 1], "colour": "grey", "name": "x"}}, "must be 'image'"),
    ],
)
def test_a_manifest_must_agree_with_itself_its_graphs_and_its_folder(version, changes, said):
    seal(version, **changes)
    with pytest.raises(ModelError, match=said):
        tried(version)


@pytest.mark.parametrize(
    "text", ["zero\none\ntwo\n", "zero\none\ntwo\nthree\nfour\n", "one\nzero\ntwo\nthree\n", "\xff"]
)
def test_the_labels_must_be_those_of_the_manifest(version, text):
    (version / manifest.LABELS).write_bytes(text.encode("latin-1"))
    seal(version)
    with pytest.raises(ModelError, match="labels of the manifest"):
        tried(version)


def test_samples_of_another_shape_or_none_at_all_are_refused(version):
    np.savez(version / manifest.REFERENCE, images=np.zeros((2, 3, 3, 1), "uint8"), probabilities=np.zeros((2, 4)))
    seal(version)
    with pytest.raises(ModelError, match="another shape"):
        tried(version)
    (version / manifest.REFERENCE).write_bytes(b"no zip")
    seal(version)
    with pytest.raises(ModelError, match=r"parity\.npz is damaged"):
        tried(version)


def a_pipe(path):
    os.mkfifo(path)


def a_device(path):
    path.symlink_to("/dev/zero")


def a_loop(path):
    path.symlink_to(path)


@pytest.mark.parametrize("name", [manifest.NAME, manifest.ONNX, manifest.LABELS])
@pytest.mark.parametrize(
    ("make", "said"),
    [(a_pipe, "is a pipe"), (a_device, "is a device"), (os.mkdir, "is a folder"), (a_loop, "symbolic links")],
)
def test_only_regular_files_are_read(version, name, make, said):
    (version / name).unlink()
    make(version / name)
    with pytest.raises((ModelError, OSError), match=said):
        tried(version)


def test_an_unlisted_file_is_refused_where_a_signature_is_required(version):
    (version / "variables").mkdir()
    (version / "variables" / "extra").touch()
    content = manifest.read(version)
    files.verify(version, content)
    with pytest.raises(ModelError, match="variables/extra is not in the manifest"):
        files.verify(version, content, closed=True)


# Replacements for a value in JSON.
VALUES = st.sampled_from(
    [None, True, -1, 0, 2**63, 1e308, "", "x" * 5000, [], [[]], {}, {"a": 1}, [None, 4, 3, 2], ["a"]]
)


@st.composite
def damages(draw):
    """Draws a function that damages a version: one of its files, or a key or value in its manifest."""
    kind = draw(st.sampled_from(["flip", "cut", "remove", "replace", "key", "value"]))
    name = draw(st.sampled_from([manifest.NAME, manifest.ONNX, manifest.PICTURE, manifest.LABELS, manifest.REFERENCE]))
    place, bit = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 7))
    path = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    value = draw(VALUES)

    def damage(folder):
        file = folder / name
        if kind in ("key", "value"):
            _change(folder / manifest.NAME, path, kind, value)
            return
        content = bytearray(file.read_bytes())
        file.unlink()
        at = int(place * len(content))
        if kind == "flip":
            content[at] ^= 1 << bit
            file.write_bytes(content)
        elif kind == "cut":
            file.write_bytes(content[:at])
        elif kind == "replace":
            [os.mkfifo, os.mkdir][bit % 2](file)

    return damage


def _change(path, places, kind, value):
    content = node = json.loads(path.read_text())
    for place in places:
        if not isinstance(node, dict | list) or not node:
            break
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        parent, key = node, keys[place % len(keys)]
        node = node[key]
    if kind == "key":
        del parent[key]
    else:
        parent[key] = value
    path.write_text(json.dumps(content))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=damages())
def test_a_damaged_version_is_refused_or_right_and_affects_no_other(made, tmp_path_factory, damage):
    root = tmp_path_factory.mktemp("models")
    for name in ("tiny", "uninvolved"):
        shutil.copytree(made, root / name / "1")
    seal(root / "uninvolved" / "1", name="uninvolved")
    damage(root / "tiny" / "1")
    catalog = Catalog(root, InProcessBackend(Settings(root), None, lambda _: lambda *_: None).open)
    catalog.refresh()
    images = np.arange(24, dtype="uint8").reshape(2, *tiny_model.SHAPE)
    expected = open_model(made).predict(images)
    served = [catalog.find("uninvolved")]
    entry = catalog.models()["tiny"]
    assert bool(entry.served) != bool(entry.failed)
    assert all(refusal.reason and len(refusal.reason) < 2000 for refusal in entry.failed.values())
    for one in [*served, *entry.served.values()]:
        found = one.model.predict(images)
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name])
        assert one.see(np.full((9, 9, 4), 255, "uint8"), segments=False).images.shape == (1, *tiny_model.SHAPE)
    shutil.rmtree(root)

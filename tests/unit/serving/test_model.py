from dataclasses import replace

import numpy as np
import onnx
import pytest

from serving import files
from serving import model as module
from serving.errors import ImageError, ModelError
from serving.manifest import NAME, ONNX, read
from serving.model import open_model, top


@pytest.mark.parametrize("batch", [0, 1, 3, 70])
def test_any_batch_size(version, kernel, batch):
    images = np.random.default_rng(1).integers(0, 256, (batch, 4, 3, 1), dtype="uint8")
    logits = images.reshape(batch, 12) @ kernel
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = open_model(version).predict(images)
    assert set(found) == {"probabilities"}
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    assert found["probabilities"].dtype == np.float32


@pytest.mark.parametrize(("slow", "sizes"), [(0.0, [16, 16, 16, 2]), (60.0, [16, 34])], ids=["slow", "fast"])
def test_slow_nets_compute_a_few_images_at_a_time(version, monkeypatch, slow, sizes):
    monkeypatch.setattr(module, "SLOW", slow)
    opened, parts = open_model(version), []
    images = np.random.default_rng(2).integers(0, 256, (50, 4, 3, 1), dtype="uint8")
    expected = [opened.predict(one[None])["probabilities"][0] for one in images]

    class Session:
        def run(self, names, inputs):
            parts.append(len(inputs["image"]))
            return opened.session.run(names, inputs)

    found = replace(opened, session=Session()).predict(images)["probabilities"]
    assert parts == sizes
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_version_of_an_earlier_format_takes_no_image_files(version):
    with pytest.raises(ImageError, match=r"has no picture\.onnx"):
        open_model(version).to_input(np.zeros((9, 9, 4), np.uint8))


def test_the_models_folder_opens_its_newest_version(version):
    assert open_model(version.parent).folder == version


@pytest.mark.parametrize("images", [np.zeros((1, 4, 3, 1), "float32"), np.zeros((1, 3, 4, 1), "uint8")])
def test_other_images_are_refused(version, images):
    with pytest.raises(ValueError, match=r"must be uint8 of shape \(batch, 4, 3, 1\).*Received"):
        open_model(version).predict(images)


def test_a_damaged_file_is_not_opened(version):
    (version / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"model\.onnx is damaged"):
        open_model(version)


def test_a_file_that_onnx_runtime_cannot_load_is_named(version):
    (version / "model.onnx").write_bytes(b"no graph")
    rewritten = read(version).model_copy(update={"files": files.digests(version)})
    (version / NAME).write_text(rewritten.model_dump_json())
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        open_model(version)


@pytest.mark.parametrize("place", ["kernel.bin", "../kernel.bin", "/kernel.bin"])
def test_a_graph_with_weights_in_a_file_of_its_own_choice_is_refused(version, kernel, monkeypatch, place):
    monkeypatch.chdir(version)
    (path := version / place if place[0] != "/" else version / "kernel.bin").write_bytes(kernel.tobytes())
    graph = onnx.load(version / ONNX)
    (weights,) = graph.graph.initializer
    location = str(path) if place[0] == "/" else place
    onnx.external_data_helper.set_external_data(weights, location, 0, kernel.nbytes)
    weights.ClearField("raw_data")
    (version / ONNX).write_bytes(graph.SerializeToString())
    made = read(version).model_copy(update={"files": files.digests(version)})
    (version / NAME).write_text(made.model_dump_json())
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        open_model(version)


def test_top_sorts_and_is_stable():
    probabilities = np.array([[0.1, 0.4, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(top(probabilities, 3), [[1, 3, 0], [2, 0, 1]])
    assert top(probabilities, 9).shape == (2, 4)

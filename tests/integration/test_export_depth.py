"""`highway export` of deep stacks, whose graphs keep a loop, and of nets of single layers."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from PIL import Image

import highway_keras
from highway_keras import surgery
from pipelines.core.run import load_model, open_run
from pipelines.data import sources
from pipelines.export.export import export
from pipelines.verbs.cli import main
from serving.manifest import read
from serving.model import open_model
from tests.finished_run import finished, scramble
from tests.integration.test_export_golden import ONNX, WITHOUT_PACKAGES

DEPTH = 1000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data_dir(mnist_5k):
    """The digits, prepared."""
    return mnist_5k


@pytest.fixture(scope="module")
def digits(data_dir):
    return sources.load("mnist_5k", "test", data_dir).images[:20]


def net(depth, width):
    """Builds a dense net whose outputs differ between images at any depth: its gates let part of x through."""
    model = highway_keras.from_preset("mnist_dense_50", depth=depth, width=width, transform_bias=-8.0)
    scramble(model, scale=0.3)
    return model


def probabilities(model, images):
    """Computes a dense net in float64 with NumPy, layer by layer."""
    entry, entry_bias, *stacks, last, last_bias = (np.float64(weight) for weight in model.get_weights())
    x = np.tanh(np.float64(images).reshape(len(images), -1) / 256 @ entry + entry_bias)
    for kernel, bias, transform_kernel, transform_bias in zip(*stacks, strict=True):
        gate = 1 / (1 + np.exp(-(x @ transform_kernel + transform_bias)))
        x = gate * np.tanh(x @ kernel + bias) + (1 - gate) * x
    odds = np.exp(x @ last + last_bias)
    return odds / odds.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def deep(shared, data_dir):
    """A net of 1,000 layers and its exported version; tests only read both."""

    def make(folder):
        export(finished(folder / "run", net(DEPTH, 16)).path, folder / "models" / "deep", data_dir=data_dir)

    folder = shared("deep", make)
    return load_model(open_run(folder / "run")), folder / "models" / "deep" / "1"


def test_a_net_of_a_thousand_layers_predicts_in_a_fresh_process(tmp_path, deep, digits):
    model, version = deep
    np.save(tmp_path / "images.npy", digits)
    absent = "highway_keras,pipelines,serving,keras,tensorflow"
    words = [sys.executable, "-I", "-c", ONNX + WITHOUT_PACKAGES, absent, tmp_path / "images.npy", version]
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "0.npz")
    expected = probabilities(model, digits)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-4)
    np.testing.assert_array_equal(found["class_id"], expected.argmax(-1))
    assert np.ptp(expected, axis=0).max() > 0.1


def test_the_size_of_the_graphs_does_not_grow_with_depth(deep, exported):
    _, version = deep
    # About twenty nodes are outside of the loop: preprocessing, first and last layer, class, label and mean gates.
    assert len(onnx.load(version / "model.onnx").graph.node) < 25
    weights = sum(path.stat().st_size for path in (version / "variables").iterdir())
    assert weights - 4 * read(version).model.parameters < 2_000
    # Most of the graph decodes and converts image files, for any net.
    shallow = (exported / "1" / "saved_model.pb").stat().st_size
    assert (version / "saved_model.pb").stat().st_size < shallow + 20_000


def test_the_manifest_and_predictions_of_a_deep_version_are_right(tmp_path, deep, digits, capsys):
    model, version = deep
    found = read(version)
    assert found.parity.images == found.parity.onnx.same_label + found.parity.onnx.ties == 256
    assert found.model.parameters == model.count_params()
    expected = probabilities(model, digits)
    served = open_model(version)
    np.testing.assert_allclose(served.predict(digits)["probabilities"], expected, atol=1e-4)
    empty = served.predict(digits[:0])
    assert (empty["probabilities"].shape, empty["gate_means"].shape) == ((0, 10), (0, DEPTH - 1))
    Image.fromarray(digits[0, ..., 0]).save(tmp_path / "digit.png")
    assert main(["predict", str(version), str(tmp_path / "digit.png"), "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["top"][0]
    assert first["label"] == str(expected[0].argmax())
    assert first["probability"] == pytest.approx(expected[0].max(), abs=1e-4)


def test_an_earlier_run_of_single_layers_is_evaluated_and_exported(tmp_path, data_dir, digits):
    with_stack = net(12, 16)
    model = surgery.unstacked(with_stack)
    assert sum(type(layer) is highway_keras.Highway for layer in model.layers) == 11
    run = finished(tmp_path / "old", model)
    run.update(metrics={"loss": 2.0, "accuracy": 0.1, "val_loss": 2.0, "val_accuracy": 0.1})
    assert main(["evaluate", str(run.path), "--data-dir", str(data_dir)]) == 0
    assert main(["export", str(run.path), "--data-dir", str(data_dir), "--to", str(tmp_path / "model")]) == 0
    assert read(tmp_path / "model" / "1").run.test["count"] == 500
    found = open_model(tmp_path / "model").predict(digits)["probabilities"]
    np.testing.assert_allclose(found, probabilities(with_stack, digits), atol=1e-5)

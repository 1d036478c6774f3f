"""Exports of earlier releases and of the current code, in fresh processes that cannot import this package.

tests/golden holds exports that were written once. Users' programs read exports as these tests do: a failure means that
the format has changed, and that models exported before may no longer load.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ImageError
from serving.manifest import NAME
from serving.model import open_model

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT = GOLDEN.parents[1]
# The first format had neither image files nor gates.
FIRST, SECOND = (GOLDEN / "models" / "tiny" / version for version in "12")
IMAGES, EXPECTED = np.load(GOLDEN / "images.npy"), np.load(GOLDEN / "probabilities.npy")

WITHOUT_PACKAGES = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"{name} is not here", name=name)
sys.meta_path.insert(0, Absent())
import numpy as np
images = np.load(sys.argv[2])
for number, folder in enumerate(sys.argv[3:]):
    np.savez(f"{number}.npz", **predict(folder, images))
"""

SAVED_MODEL = """
def predict(folder, images):
    import tensorflow as tf
    loaded = tf.saved_model.load(folder)
    outputs = loaded.signatures["serving_default"](image=tf.constant(images))
    return {name: outputs[name].numpy() for name in ("probabilities", "class_id")}
"""

ONNX = """
def predict(folder, images):
    import onnxruntime
    session = onnxruntime.InferenceSession(folder + "/model.onnx", providers=["CPUExecutionProvider"])
    names = ["probabilities", "class_id"]
    return dict(zip(names, session.run(names, {"image": images})))
"""


@pytest.fixture(scope="module")
def exported_today(exported):
    """The golden net, exported by the current code."""
    return exported / "1"


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        pytest.param(SAVED_MODEL, "highway_keras,pipelines,serving", marks=pytest.mark.slow),
        (ONNX, "highway_keras,pipelines,serving,keras,tensorflow"),
    ],
)
def test_exports_run_without_this_package(tmp_path, exported_today, program, absent):
    # -I leaves out the current folder, PYTHONPATH and the user's own packages.
    words = [
        sys.executable,
        "-I",
        "-c",
        program + WITHOUT_PACKAGES,
        absent,
        GOLDEN / "images.npy",
        FIRST,
        SECOND,
        exported_today,
    ]
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for number in range(3):
        found = np.load(tmp_path / f"{number}.npz")
        assert set(found) == {"probabilities", "class_id"}
        np.testing.assert_allclose(found["probabilities"], EXPECTED, atol=1e-5)
        np.testing.assert_array_equal(found["class_id"], EXPECTED.argmax(-1))
        assert (found["probabilities"].dtype, found["class_id"].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_serving_opens_an_earlier_export(version):
    model = open_model(version)
    np.testing.assert_allclose(model.predict(IMAGES)["probabilities"], EXPECTED, atol=1e-5)
    assert model.manifest.labels == tuple("0123456789")
    assert model.manifest.input.shape == (None, 28, 28, 1)


def test_an_earlier_export_takes_image_files_and_returns_gates():
    model = open_model(SECOND)
    rgba = np.concatenate([np.repeat(IMAGES[0], 3, -1), np.full((28, 28, 1), 255, np.uint8)], -1)
    np.testing.assert_array_equal(model.to_input(rgba), IMAGES[0])
    assert model.predict(IMAGES)["gate_means"].shape == (len(IMAGES), len(model.manifest.gates))
    with pytest.raises(ImageError, match=r"takes no image files.*Export the run again"):
        open_model(FIRST).to_input(rgba)


def key_types(value):
    """Returns the keys and types of a JSON value, without parts that differ from run to run."""
    if isinstance(value, dict):
        return {
            key: key_types(inner) for key, inner in value.items() if key not in {"versions", "config", "preprocess"}
        }
    return type(value).__name__


def test_the_manifest_keeps_its_format(exported_today):
    first, second, now = (
        key_types(json.loads((folder / NAME).read_text())) for folder in (FIRST, SECOND, exported_today)
    )
    # A form that was added since adds its files and its parity, and nothing else.
    now["files"] = {name: kind for name, kind in now["files"].items() if name in second["files"]}
    now["parity"].pop("other_forms", None)
    # So do maps of gates.
    now.pop("maps", None)
    assert now == second
    # Readers of the first format find all of its keys.
    assert contains(now, first)


def contains(whole, part):
    """Returns True if a value has all keys and types of another."""
    if not isinstance(part, dict):
        return whole == part
    return all(key in whole and contains(whole[key], inner) for key, inner in part.items())


KERAS = """
import sys
import keras, numpy as np
import highway_keras
model = keras.saving.load_model(sys.argv[1])
logits = model(np.load(sys.argv[2]) / np.float32(256), training=False)
np.save(sys.argv[3], keras.ops.convert_to_numpy(keras.ops.softmax(logits)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_an_earlier_model_file_loads_on_every_backend(tmp_path, backend):
    words = [sys.executable, "-c", KERAS, GOLDEN / "model.keras", GOLDEN / "images.npy", tmp_path / "found.npy"]
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, env=environment, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), EXPECTED, atol=1e-5)

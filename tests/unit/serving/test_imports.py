"""Serving runs without TensorFlow, Keras and the training pipeline."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
import serving.http.app, serving.image_files, serving.model
import serving.tf_serving.backend, serving.tf_serving.over_grpc, serving.tf_serving.over_rest
serving.model.open_model(Path(sys.argv[2])).predict(np.zeros((2, 4, 3, 1), "uint8"))
serving.image_files.read(Path(sys.argv[3]))
import os
print(os.environ["ORT_DISABLE_TELEMETRY"])
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots & {"tensorflow", "keras", "jax", "pipelines", "highway_keras", "tf2onnx", "onnx", "matplotlib"}))
"""


def run(version, tmp_path, **environment):
    from PIL import Image

    Image.fromarray(np.zeros((4, 3), "uint8")).save(tmp_path / "a.png")
    words = [sys.executable, "-c", PROGRAM, str(ROOT), str(version), str(tmp_path / "a.png")]
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(words, env={**kept, **environment}, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_serving_imports_none_of_them_and_keeps_telemetry_off(version, tmp_path):
    assert run(version, tmp_path, HOME=str(tmp_path / "home"), XDG_CACHE_HOME="") == ["1", "[]"]
    # Where ONNX Runtime would keep the identity that it reports.
    assert not list((tmp_path / "home").rglob("*onnxruntime*"))


def test_the_users_telemetry_setting_is_kept(version, tmp_path):
    # Another word for off: a test must not send any.
    assert run(version, tmp_path, ORT_DISABLE_TELEMETRY="yes")[0] == "yes"

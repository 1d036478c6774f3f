"""Saved models and weights give the same outputs in a new process, also on another backend.

So that the processes start quickly, they import Keras without the packages that it would import if they are installed,
and without a search for garbage.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack, gates
from highway_keras.models import Stage, conv
from tests.unit.highway_keras.backend import BACKEND, scramble

SCRIPT = """
import gc, json, sys, warnings
from pathlib import Path
gc.disable()
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)  # Keras 3.15 with numpy 2
backend, folder = sys.argv[1], Path(sys.argv[2])

unused = ["matplotlib", "pandas", "sklearn", *({"jax", "torch"} - {backend})]
sys.modules.update(dict.fromkeys(unused))
import keras
for name in unused:
    del sys.modules[name]
bare = set(sys.modules)
import highway_keras
assert keras.backend.backend() == backend
frameworks = {"tensorflow", "tensorflow_datasets", "jax", "torch", "matplotlib", "pipelines", "serving"}
brought = sorted(frameworks & (set(sys.modules) - bare))
if backend != "tensorflow":
    assert "tensorflow" not in sys.modules
    # Keras would import it to compare its types, where it is installed.
    sys.modules["tensorflow"] = None

sys.modules["matplotlib"] = None
without_matplotlib = ""
try:
    import highway_keras.analysis.plots
except ImportError as error:
    without_matplotlib = str(error)

import numpy as np
given = np.load(folder / "given.npz")
whole = keras.saving.load_model(folder / "whole.keras")
rebuilt = keras.Model.from_config(json.loads((folder / "config.json").read_text()))
rebuilt.load_weights(folder / "model.weights.h5")
apart = [float(np.abs(whole.predict_on_batch(given["x"]) - given["y"]).max())]
apart += [float(np.abs(one - other).max()) for one, other in zip(rebuilt.get_weights(), whole.get_weights())]
assert rebuilt.get_config() == whole.get_config()
read = highway_keras.gates(whole, given["x"])
apart.append(max(float(np.abs(gate - given["gate/" + name]).max()) for name, gate in read.items()))
resized = keras.saving.load_model(folder / "resized.keras")
apart.append(float(np.abs(resized.predict_on_batch(given["x"]) - given["resized"]).max()))
layers = [layer.name for layer in resized.layers]
found = {"brought": brought, "apart": apart, "gates": list(read), "layers": layers}
print(json.dumps({**found, "without_matplotlib": without_matplotlib}))
"""


def all_options():
    """Builds a model with every option of all layers."""
    # JAX would compile random initializers, also when it loads the model.
    zeros = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}
    inputs = keras.Input((6, 6, 3))
    x = ConvHighway(3, transform_bias="auto", depth=20, dilation_rate=2, groups=3, name="conv", **zeros)(inputs)
    options = {"batch_normalization": True, "normalization_epsilon": 1e-5, "carry_gate": "separate", **zeros}
    x = ConvHighway((1, 3), kernel_regularizer="l2", name="all", **options)(x)
    x = keras.layers.Reshape((36, 3))(x)
    x = ConvHighway(2, padding="causal", use_bias=False, activation="tanh", name="steps", **zeros)(x)
    options = {"dropout": 0.25, "seed": 1, "transform_bias": keras.initializers.RandomUniform(-3, -1), **zeros}
    x = Highway(gate_activation="hard_sigmoid", transform_constraint="non_neg", name="rank3", **options)(x)
    x = HighwayStack(
        3,
        **zeros,
        rematerialize=True,
        transform_bias="auto",
        kernel_regularizer=keras.regularizers.OrthogonalRegularizer(),
        transform_constraint=keras.constraints.UnitNorm(axis=0),
        name="stack",
    )(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    x = Highway(carry_gate="separate", batch_normalization=True, name="flat", **zeros)(x)
    return keras.Model(inputs, keras.layers.Dense(4, kernel_initializer="zeros")(x))


def resized():
    """Builds a factory model whose channels grow by zero-padding."""
    stages = (Stage(2, blocks=(3, 1), pool=(3, 2), dropout=0.3), Stage(4, blocks=(3,), pool="average"))
    return conv((6, 6, 3), outputs=3, stages=stages, resize="zero_pad", hidden=3, l2=1e-3, first_std=1.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model, other = scramble(all_options()), scramble(resized())
    x = np.random.default_rng(0).normal(size=(3, 6, 6, 3)).astype("float32")
    read = {f"gate/{name}": gate for name, gate in gates(model, x).items()}
    outputs = {"y": model.predict_on_batch(x), "resized": other.predict_on_batch(x)}
    np.savez(folder / "given.npz", x=x, **outputs, **read)
    other.save(folder / "resized.keras")
    model.save(folder / "whole.keras")
    model.save_weights(folder / "model.weights.h5")
    (folder / "config.json").write_text(json.dumps(model.get_config()))
    return folder


OTHER = "tensorflow" if BACKEND == "jax" else "jax"


@pytest.mark.slow
@pytest.mark.parametrize("backend", [OTHER, BACKEND])
def test_saved_files_give_the_same_outputs_in_a_new_process(saved, backend):
    done = run_python(backend, SCRIPT, backend, str(saved))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["brought"] == [], "highway_keras imports a second framework or Matplotlib"
    assert "pip install 'matplotlib" in found["without_matplotlib"]
    assert found["gates"] == ["conv", "all", "steps", "rank3", "stack_01", "stack_02", "stack_03", "flat"]
    assert found["layers"] == [layer.name for layer in resized().layers]
    assert max(found["apart"]) < 1e-5


def run_python(backend, *arguments):
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

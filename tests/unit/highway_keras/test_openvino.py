"""OpenVINO, which only infers, runs nets that another backend has saved.

It is in no environment of this project. To run these tests, install `openvino` next to a backend that trains.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack, gates, mean_gates

pytest.importorskip("openvino", reason="OpenVINO is not installed")

SCRIPT = """
import json, sys
from pathlib import Path
import keras, numpy as np, openvino
import highway_keras
assert keras.backend.backend() == "openvino"
folder = Path(sys.argv[1])
given = np.load(folder / "given.npz")
x = given["x"]
model = keras.saving.load_model(folder / "model.keras")
found = {"y": model.predict(x, verbose=0), **highway_keras.gates(model, x)}
found["means"] = np.array(list(highway_keras.mean_gates(model, x).values()))
signature = [keras.InputSpec(shape=x.shape, dtype="float32")]
model.export(str(folder / "model.xml"), format="openvino", verbose=False, input_signature=signature)
net = openvino.Core().compile_model(folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found["exported"] = net(x)[0]
print(json.dumps({name: float(np.abs(array - given[name]).max()) for name, array in found.items()}))
"""


def small():
    inputs = keras.Input((6, 6, 2))
    x = ConvHighway(3, batch_normalization=True, name="conv")(inputs)
    x = Highway(carry_gate="separate", dropout=0.3, seed=0, name="flat")(keras.layers.Flatten()(x))
    x = HighwayStack(4, activation="tanh", name="stack")(x)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def thousand():
    inputs = keras.Input((4,))
    x = HighwayStack(1000, activation="tanh", transform_bias=-6.0, name="deep")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile("adam", "mse")
    model.fit(np.random.default_rng(0).normal(size=(8, 4)), np.zeros((8, 3)), epochs=2, verbose=0)
    return model


@pytest.mark.parametrize("make", [small, pytest.param(thousand, marks=pytest.mark.slow)])
def test_a_saved_net_has_the_same_outputs_and_gates(make, tmp_path):
    model = make()
    x = np.random.default_rng(1).normal(size=(5, *model.input_shape[1:])).astype("float32")
    y, means = model.predict(x, verbose=0), list(mean_gates(model, x).values())
    np.savez(tmp_path / "given.npz", x=x, y=y, exported=y, means=means, **(read := gates(model, x)))
    model.save(tmp_path / "model.keras")
    environment = {**os.environ, "KERAS_BACKEND": "openvino"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    apart = json.loads(done.stdout.splitlines()[-1])
    assert list(apart) == ["y", *read, "means", "exported"]
    assert apart.pop("exported") < 1e-5 * np.abs(y).max()
    # OpenVINO computes `predict` in bfloat16 where the processor has it, which 1,000 layers do not survive.
    if make is small:
        assert apart.pop("y") < 0.02 * np.abs(y).max()
        assert max(apart.values()) < 0.01

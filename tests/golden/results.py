"""Writes an archive of the results of finished commands, by the `highway` in PATH: studies, searches, tables.

    python -m tests.golden.results COMMIT.tar.xz

Complements `artefacts.py`; the same rules apply. Run it in an empty folder, with the current code in PYTHONPATH.
"""

import os
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests.finished_study import BUDGET, prepare
from tests.golden.artefacts import LEFT_OUT, TINY, highway

NET = ["mnist_dense_50", *TINY, "--model.depth", "3", "--epochs", "1"]
TUNE = ["tune", *NET, "--trials", "2", "--retrain", "1"]
TUNE += ["--search.learning-rate", "0.001", "0.1", "--search.transform-bias", "-4", "-1"]
DEPTH_STUDY = ["tune", "depth_study", "--data", "mnist_5k", "--validation", "0", "--subset.train", "40"]
DEPTH_STUDY += ["--subset.test", "20", "--batch-size", "20", "--budget", "0.0001"]
PREDICT = ["predict", "models/digits", "digit.png", "--out", "predictions.parquet", "--explain"]
# One arm of a study that measures nothing, of one that measures each net, and of one that reads it during training.
STUDIES = {"depth-contrast": ["highway-5"], "gates": ["mnist"], "mnist": ["width-16"], "optimization": []}
# Weights of nets of full width would take most of the archive, and nothing reads the checkpoint of a finished run.
WEIGHTS = {"model.keras", "best.keras"}


def reproduce(study: str, arms: list[str]) -> list[str]:
    """Returns the command that runs some arms of a study."""
    words = ["reproduce", study, "--budget", BUDGET, "--to", f"studies/{study}"]
    return [*words, "--arms", *arms] if arms else words


def main(archive: Path) -> None:
    """Writes the archive."""
    os.environ["TFDS_DATA_DIR"] = str(prepare(Path("data").resolve()))
    highway("train", *NET, "--run", "runs/digits")
    highway("evaluate", "runs/digits")
    highway("analyze", "runs/digits", "--examples", "20")
    highway("export", "runs/digits", "--int8")
    with np.load("models/digits/1/parity.npz") as parity:
        Image.fromarray(parity["images"][0, ..., 0]).save("digit.png")
    highway(*PREDICT)
    highway("train", "factor", "--model.width", "4", "--epochs", "1", "--run", "runs/factor")
    highway("evaluate", "runs/factor")
    highway(*TUNE, "--to", "searches/retrained")
    highway(*DEPTH_STUDY, "--to", "searches/depth_study")
    for study, arms in STUDIES.items():
        highway(*reproduce(study, arms))
    with tarfile.open(archive, "w:xz", preset=9) as file:
        for name in ("digit.png", "models", "predictions.parquet", "runs", "searches", "studies"):
            file.add(name, filter=_kept)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(member.name).parts
    left_out = {*LEFT_OUT, "checkpoint", *(WEIGHTS if parts[0] == "studies" else ())}
    return None if left_out & {*parts} else member


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Writes an archive of work that was stopped, by the `highway` in PATH: a convolutional run, a factor run, searches.

    python -m tests.golden.interrupted COMMIT.tar.xz

Complements `artefacts.py`; the same rules apply. Run it in an empty folder, with the current code in PYTHONPATH.
"""

import sys
import tarfile
from functools import partial
from pathlib import Path

from tests.golden.artefacts import LEFT_OUT, TINY, completed, highway, stop

STEPS = ["--checkpoint-steps", "1"]
CONV = ["train", "mnist_conv_16", *TINY, "--model.width", "2", "--epochs", "2", "--validation", "0", *STEPS]
CONV += ["--preprocess.mean", "pixel", "--augment.pad", "2", "--optimizer.ema", "0.9", "--optimizer.clip-norm", "1"]
FACTOR = ["train", "factor", "--model.width", "4", "--epochs", "6", *STEPS]
RUNS = {"conv": CONV, "factor": FACTOR}
TUNE = ["tune", "mnist_dense_50", *TINY, "--model.depth", "3", "--steps-per-execution", "1"]
TUNE += ["--search.learning-rate", "0.001", "0.1", "--search.transform-bias", "-4", "-1"]
SEARCHES = {
    "bayesian": [*TUNE, "--algorithm", "bayesian", "--trials", "5", "--epochs", "1"],
    "hyperband": [*TUNE, "--algorithm", "hyperband", "--epochs", "4"],
}


def main(archive: Path) -> None:
    """Writes the archive; of a run that was not stopped, only the record."""
    for name, words in RUNS.items():
        run = Path("runs") / name
        stop([*words, "--run", str(run)], (run / "checkpoint" / "state.npz").exists)
        highway(*words, "--run", f"uninterrupted/{name}")
    for name, words in SEARCHES.items():
        folder = Path("searches") / name
        stop([*words, "--to", str(folder)], lambda folder=folder: completed(folder) >= 2)
    with tarfile.open(archive, "w:xz", preset=9) as file:
        file.add("runs", filter=partial(_kept, LEFT_OUT))
        for name in RUNS:
            file.add(f"uninterrupted/{name}/run.json")
        # Nothing reads the weights of completed trials.
        file.add("searches", filter=partial(_kept, {*LEFT_OUT, "checkpoint", "best.keras"}))


def _kept(left_out: set[str], member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if left_out & set(Path(member.name).parts) else member


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Writes an archive with one small artefact of each kind, by the `highway` in PATH.

    python tests/golden/artefacts.py COMMIT.tar.xz

Add an archive when a file format is meant to change, written by the commit before the change; earlier archives stay.
Run it in an empty folder, with the recipes of that commit as recipes/NAME.json (`Recipe.model_dump_json`).
"""

import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

TINY = ["--data", "mnist_5k", "--subset.train", "60", "--subset.test", "20", "--batch-size", "20"]
TINY += ["--model.width", "4", "--precision", "float32"]
TRAIN = ["train", "demo", *TINY, "--epochs", "4", "--schedule.warmup", "0.2", "--checkpoint-steps", "1"]
TUNE = ["tune", "mnist_dense_50", *TINY, "--model.depth", "3", "--epochs", "2", "--steps-per-execution", "1"]
TUNE += ["--trials", "3", "--search.learning-rate", "0.001", "0.1", "--search.transform-bias", "-4", "-1"]
LEFT_OUT = {"figures", "logs", "tensorboard", "key.pem"}


def highway(*words: str) -> None:
    """Runs a command until it ends."""
    subprocess.run(["highway", *words], check=True)


def stop(words: list[str], ready: Callable[[], bool]) -> None:
    """Runs a command and stops it with SIGTERM once a condition holds."""
    process = subprocess.Popen(["highway", *words])
    while not ready():
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM


def completed(search: Path) -> int:
    """Returns the number of completed trials."""
    try:
        trials = json.loads((search / "oracle.json").read_text())["trials"]
    except FileNotFoundError:
        return 0
    return sum(trial["status"] == "COMPLETED" for trial in trials)


def main(archive: Path) -> None:
    """Writes the archive."""
    stop([*TRAIN, "--run", "runs/interrupted"], Path("runs/interrupted/checkpoint/state.npz").exists)
    highway(*TRAIN, "--run", "runs/finished")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem"], check=True)
    subprocess.run(["openssl", "pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"], check=True)
    highway("export", "runs/finished", "--sign", "key.pem")
    stop([*TUNE, "--to", "searches/stopped"], lambda: completed(Path("searches/stopped")) >= 2)
    highway(*TUNE, "--to", "searches/finished")
    Path("searches/finished/best.json").rename("best.json")
    with tarfile.open(archive, "w:xz") as file:
        for name in ("best.json", "key.pub", "models", "recipes", "runs", "searches/stopped"):
            file.add(name, filter=lambda member: None if LEFT_OUT & set(Path(member.name).parts) else member)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

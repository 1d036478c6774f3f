"""A trained run that is evaluated and analysed, and exported versions, each made once for all modules; and commands.

pytest reads this file before it starts its workers, which therefore do not wait for an import of TensorFlow here.
"""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(scope="module")
def trained_run(shared, tmp_path_factory):
    """A trained run on toy data, which the tests of a module may evaluate and analyse."""
    from pipelines.core.config import Preprocess
    from pipelines.training.train import train
    from tests.toy_data import ToyData, toy_config

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            ToyData().install(patch)
            config = toy_config(epochs=3, preprocess=Preprocess(mean="channel"))
            train(config, folder / "run", console=Console(file=io.StringIO()))

    return shutil.copytree(shared("trained", make) / "run", tmp_path_factory.mktemp("runs") / "toy")


@pytest.fixture(scope="session")
def exported(shared, mnist_5k):
    """The model `tiny` with gates in two versions, the golden net and another; tests only read it.

    The second one converts image files as photographs, which takes a fraction of the time.
    """
    from pipelines.export.export import export
    from tests.finished_run import finished, tiny_net

    def make(folder):
        for seed in (0, 1):
            run = finished(folder / f"run{seed}", tiny_net(seed))
            if seed == 0:
                shutil.copy(GOLDEN / "model.keras", run.path)
            kind = "natural" if seed else None
            export(run.path, folder / "models" / "tiny", data_dir=mnist_5k, conversion=kind)

    return shared("exported", make) / "models" / "tiny"


@pytest.fixture
def started():
    """A function that starts Python with words in a folder; processes that still run after the test are killed."""
    running = []

    def start(folder, *words):
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()

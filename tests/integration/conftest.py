"""A trained run that is evaluated and analysed, and exported versions, each made once for all modules; and commands.

pytest reads this file before it starts its workers, which therefore do not wait for an import of TensorFlow here.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
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


@pytest.fixture
def own_place(bucket, monkeypatch, tmp_path):
    """Frequent uploads, temporary files of the test's own, and no connections of earlier tests."""
    from pipelines.core import sync
    from pipelines.core import url as urls

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sync, "PERIOD", 0.1)
    # It needs a real standard error.
    for module in ("training.processes.train", "tuning.trial_task"):
        monkeypatch.setattr(f"pipelines.{module}.watchdog", lambda: nullcontext(lambda: None))
    # Figures take a quarter of the time.
    monkeypatch.setattr("pipelines.training.figures.draw_training", lambda run: None)
    urls._store.cache_clear()
    yield
    urls._store.cache_clear()


@pytest.fixture
def toy(monkeypatch):
    """Toy images in place of MNIST."""
    from tests.toy_data import ToyData

    return ToyData(side=28).install(monkeypatch)

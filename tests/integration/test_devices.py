"""`--devices`: training on two parts of a CPU equals training on all of it.

The runs are made in a process of their own, because a process that has computed before cannot divide its CPU.
"""

import io
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.config import ModelConfig, StageConfig
from pipelines.core.errors import UserError
from pipelines.training import figures, metrics_file
from pipelines.training.train import resume, train
from tests.interrupted import at, copied
from tests.killed_run import NEWEST, ROOT, differences
from tests.toy_data import CONVOLUTIONS, ToyData, toy_config

pytestmark = pytest.mark.slow
CONFIGS = {
    "tensorflow": toy_config(model=CONVOLUTIONS, freeze=2),
    "jax": toy_config(model=ModelConfig(preset="mnist_conv_16", width=4, dropout=0.2, batch_normalization=True)),
}
# Whitened, and with smaller images in the first of two epochs.
GROWING = toy_config(
    model=CONVOLUTIONS.model_copy(
        update={"stages": (*CONVOLUTIONS.stages, StageConfig(filters=4, pool="average")), "whitened": True}
    ),
    small_side=6,
)


def make(folder):
    """Trains a run on one device and on two, resumes copies of the latter on two and on one, and prints messages.

    On TensorFlow, it also makes the arrays of `tests.replicas`.
    """
    config = CONFIGS[os.environ["KERAS_BACKEND"]]
    console = Console(file=io.StringIO(), width=400)
    with pytest.MonkeyPatch.context() as patch:
        toy = ToyData().install(patch)
        patch.setattr(figures, "draw_training", lambda run: None)
        # The last batch of validation has one example, and the one before is not divided evenly either.
        toy.counts = toy.counts | {"validation": 41}
        train(config, folder / "one", console=console)
        with copied(folder / "two", folder, [(14, False)]):
            train(config, folder / "two", interval=1, devices=2, console=console)
        for devices in (1, 2):
            train(GROWING, folder / f"growing-{devices}", devices=devices, console=console)
        shutil.copytree(at(folder, 14), folder / "less")
        resume(at(folder, 14), interval=1, console=console)
        resume(folder / "less", devices=1, console=console)
        for changes, devices in (({}, 3), ({"batch_size": 25}, 2)):
            with pytest.raises(UserError) as refused:
                train(config.model_copy(update=changes), folder / "refused", devices=devices, console=console)
            console.print(refused.value)
    sys.stdout.write(console.file.getvalue())
    if keras.backend.backend() == "tensorflow":
        from tests import replicas

        replicas.write(folder)


@pytest.fixture(scope="module", params=["tensorflow", "jax"])
def made(request, shared):
    """The folder of the runs of `make`, which tests only read, and its output."""

    def run(folder):
        # Before this module, which imports TensorFlow with packages that nothing here uses.
        load = "from pipelines.core import frameworks\nframeworks.load(2)\n"
        code = f"{load}from pathlib import Path\nfrom {__name__} import make\nmake(Path({str(folder)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "KERAS_BACKEND": request.param, "JAX_NUM_CPU_DEVICES": "2"},
        )
        assert done.returncode == 0, done.stderr
        (folder / "output.txt").write_text(done.stdout)

    folder = shared(f"devices-{request.param}", run)
    return folder, (folder / "output.txt").read_text()


def state(run):
    """Returns the arrays of the last checkpoint."""
    with np.load(run / NEWEST) as arrays:
        return {name: arrays[name] for name in arrays.files if name != "head"}


@pytest.mark.parametrize("names", [("one", "two"), ("growing-1", "growing-2")], ids=["plain", "growing"])
def test_the_numbers_are_those_of_one_device(made, names):
    folder, _ = made
    one, two = (folder / name for name in names)
    for left, right in zip(*(metrics_file.read(run / "metrics.csv") for run in (one, two)), strict=True):
        assert left.keys() == right.keys()
        for name in left.keys() - {"seconds"}:
            assert right[name] == pytest.approx(left[name], rel=1e-3, abs=1e-5), name
    for left, right in zip(state(one).values(), state(two).values(), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-2, atol=1e-4)
    assert (one / "config.json").read_bytes() == (two / "config.json").read_bytes()


def test_a_resumed_run_keeps_its_devices_and_says_if_it_gets_others(made):
    folder, output = made
    assert differences(folder / "two", at(folder, 14)) == []
    found = {name: runs.open_run(folder / name).record for name in ("one", "two", "less", at(folder, 14).name)}
    assert {name: [(start.step, start.devices) for start in record.starts] for name, record in found.items()} == {
        "one": [],
        "two": [(0, 2)],
        "less": [(0, 2), (14, 1)],
        "after-14": [(0, 2), (14, 2)],
    }
    assert output.count("each batch was divided among 2 devices and is now on 1: results are no longer bit-ident") == 1
    assert "| devices | 2 from step 0; 1 from step 14 |" in (folder / "less" / "report.md").read_text()


def test_devices_that_do_not_exist_or_fit_are_refused(made):
    folder, output = made
    assert "--devices 3 is more than this process has: 2." in output
    assert "a batch of 25 cannot be divided evenly among 2 devices. Choose --batch-size 24 or 26." in output
    assert not (folder / "refused").exists()


@pytest.mark.parametrize("made", ["tensorflow"], indirect=True)
@pytest.mark.parametrize("name", ["vectors", "maps", "channels_first", "masked", "plain", "stack", "mixed_bfloat16"])
def test_replicas_compute_what_one_device_computes(made, name):
    folder, _ = made
    one, two = (dict(np.load(folder / f"{name}-{devices}.npz")) for devices in (1, 2))
    assert one.keys() == two.keys()
    # The gradients of both parts are rounded to bfloat16, which has 8 bits, before they are added.
    tolerance = 6e-3 if name == "mixed_bfloat16" else 1e-5
    for array, expected in one.items():
        np.testing.assert_allclose(two[array], expected, tolerance, tolerance, err_msg=array)

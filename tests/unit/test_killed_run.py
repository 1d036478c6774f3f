import io
import json
import random
import shutil
import sys
import zipfile

import h5py
import numpy as np
import pytest

from tests.killed_run import Command, FailedError, Times, differences, train, train_and_kill


def net(path, value):
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file["layers/dense/vars/0"] = np.full(3, value, "float32")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.weights.h5", content.getvalue())


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    (path / "checkpoint").mkdir(parents=True)
    np.savez(path / "checkpoint" / "state.npz", head=np.array("{}"), **{"variable-00000": np.ones(3, "float32")})
    (path / "metrics.csv").write_text("epoch,step,seconds,loss\n1,10,1.5,0.25\n")
    (path / "run.json").write_text(
        json.dumps({"state": "finished", "step": 10, "seconds": 2, "metrics": {"loss": 0.25}, "gates": {}})
    )
    for name in ("best.keras", "model.keras"):
        net(path / name, 1)
    return path


@pytest.fixture
def other(run, tmp_path):
    return shutil.copytree(run, tmp_path / "other")


def test_durations_and_dates_are_ignored(run, other):
    (other / "metrics.csv").write_text("epoch,step,seconds,loss\n1,10,7.5,0.25\n")
    record = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**record, "seconds": 9, "created": "later"}))
    net(other / "best.keras", 1)
    assert differences(run, other) == []


def test_a_change_of_one_bit_elsewhere_is_a_difference(run, other):
    np.savez(
        other / "checkpoint" / "state.npz",
        head=np.array("{}"),
        **{"variable-00000": np.nextafter(np.ones(3, "float32"), np.float32(2))},
    )
    (other / "metrics.csv").write_text("epoch,step,seconds,loss\n1,10,1.5,0.250000001\n2,20,1,0\n")
    (other / "run.json").write_text(
        json.dumps({"state": "finished", "step": 10, "metrics": {"loss": 0.2}, "gates": {}})
    )
    net(other / "best.keras", np.nextafter(np.float32(1), np.float32(2)))
    assert differences(run, other) == [
        "best.keras layers/dense/vars/0",
        "checkpoint/state.npz variable-00000",
        "metrics.csv 1 loss",
        "metrics.csv 2 epoch",
        "metrics.csv 2 loss",
        "metrics.csv 2 step",
        "run.json metrics",
    ]


# Saves three times, and is finished after a resume.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
run = Path(sys.argv[-1])
state = run / "checkpoint" / "state.npz"
state.parent.mkdir(parents=True, exist_ok=True)
for step in range(3):
    state.write_text(str(time.monotonic()))
    (run / "lives").open("a").write(f"{sys.argv[1]} {step}\\n")
    time.sleep(0.05)
(run / "report.md").touch()
"""


def test_a_run_is_killed_and_resumed_to_its_end(tmp_path):
    command = Command(tmp_path / "run", ["demo"], (sys.executable, "-c", PROGRAM))
    kills = train_and_kill(command, Times(whole=0.0, saving=0.0), 2, random.Random(0))
    assert kills == 2
    assert command.finished
    lives = (command.run / "lives").read_text().splitlines()
    assert lives[-1] == "--resume 2"


def test_left_is_the_share_of_the_remaining_steps(tmp_path):
    command = Command(tmp_path / "run", ["demo"])
    assert command.left == 1.0
    command.run.mkdir()
    (command.run / "config.json").write_text(json.dumps({"epochs": 4}))
    (command.run / "run.json").write_text(json.dumps({"step": 30, "steps_per_epoch": 10}))
    assert command.left == 0.25


def test_a_process_that_fails_by_itself_is_reported(tmp_path):
    command = Command(tmp_path / "run", ["demo"], (sys.executable, "-c", "raise SystemExit('no such recipe')"))
    with pytest.raises(FailedError, match="status 1: no such recipe"):
        train(command)

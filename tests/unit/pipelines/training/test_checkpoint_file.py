import subprocess
import sys

import numpy as np

from pipelines.core.url import Url
from pipelines.training import checkpoint_file
from pipelines.training.checkpoint_file import saved_step


def save(run, name, step):
    """Writes a checkpoint and returns its file."""
    path = run / "checkpoint" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint_file.write(path, {"progress": {"step": step}}, [np.arange(1000)], [])
    return path


def test_a_run_is_saved_up_to_its_newest_readable_checkpoint(tmp_path):
    run = tmp_path / "run"
    assert saved_step(run) == 0
    previous = save(run, "previous.npz", 7)
    # As in the moment in which the newest one is replaced.
    assert saved_step(run) == 7
    newest = save(run, "state.npz", 12)
    assert saved_step(run) == 12
    newest.write_bytes(newest.read_bytes()[:100])
    assert saved_step(run) == 7
    previous.write_bytes(b"")
    assert saved_step(run) == 0


def test_a_checkpoint_of_the_first_format_has_no_step(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    np.savez(tmp_path / "checkpoint" / "state.npz", progress=np.array("{}"))
    assert saved_step(tmp_path) == 0


def test_the_checkpoint_may_be_in_a_bucket(tmp_path):
    url = Url("memory://runs/saved")
    assert saved_step(url) == 0
    (url / "checkpoint" / "state.npz").put(save(tmp_path, "state.npz", 12))
    assert saved_step(url) == 12
    url.rmtree()


def test_the_step_is_read_without_a_framework(tmp_path):
    save(tmp_path, "state.npz", 12)
    code = (
        "import sys; from pathlib import Path; from pipelines.training.checkpoint_file import saved_step\n"
        "assert saved_step(Path(sys.argv[1])) == 12 and not {'keras', 'tensorflow', 'jax'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

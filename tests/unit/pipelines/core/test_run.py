import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.core import run
from pipelines.core.errors import UserError
from tests.finished_run import finished, tiny_net
from tests.toy_data import COUNTS, RECORD, toy_config


@pytest.fixture
def made(tmp_path):
    return run.create(tmp_path / "runs" / "toy", toy_config(), RECORD)


def test_a_run_is_read_as_it_was_created(made):
    assert sorted(entry.name for entry in made.path.iterdir()) == ["config.json", "run.json"]
    assert [entry.name for entry in made.path.parent.iterdir()] == ["toy"]
    assert run.open_run(made.path) == made
    made.update(state="finished", step=20, metrics={"loss": 0.5})
    opened = run.open_run(made.path)
    assert (opened.record.state, opened.record.step, opened.record.metrics) == ("finished", 20, {"loss": 0.5})


def test_the_folder_can_be_read_by_others(made):
    mask = os.umask(0)
    os.umask(mask)
    assert made.path.stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize("make", ["mkdir", "touch"])
def test_nothing_is_overwritten(tmp_path, make):
    path = tmp_path / "toy"
    getattr(path, make)()
    with pytest.raises(UserError, match=r"exists already, .*\. Name another folder with --run DIR\.$"):
        run.create(path, toy_config(), RECORD)
    assert [entry.name for entry in tmp_path.iterdir()] == ["toy"]
    assert path.is_file() or not list(path.iterdir())


def test_the_first_process_to_create_the_folder_keeps_it(made, monkeypatch):
    before = (made.path / "run.json").read_bytes()
    calls = []

    def blind_once(path):
        # As if the other process made its folder just after this one looked.
        calls.append(path)
        if len(calls) > 1:
            raise UserError("exists already")

    monkeypatch.setattr(run, "refuse_existing", blind_once)
    with pytest.raises(UserError, match="exists already"):
        run.create(made.path, toy_config(seed=1), RECORD)
    assert [entry.name for entry in made.path.parent.iterdir()] == ["toy"]
    assert (made.path / "run.json").read_bytes() == before


def test_a_process_of_another_machine_with_the_same_number_is_not_disturbed(tmp_path):
    theirs = tmp_path / f".toy-{os.getpid()}"
    theirs.mkdir()
    (theirs / "config.json").write_text("{}")
    run.create(tmp_path / "toy", toy_config(), RECORD)
    assert (theirs / "config.json").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"toy", theirs.name}


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        run.create(tmp_path / "toy", toy_config(), RECORD)
    assert not list(tmp_path.iterdir())


def test_folders_that_are_not_runs_are_distinguished(tmp_path, made):
    with pytest.raises(UserError, match="there is no run directory"):
        run.open_run(tmp_path / "none")
    with pytest.raises(UserError, match=f"Did you mean {made.path}\\?"):
        run.open_run(made.path.with_name(made.path.name[:-1]))
    with pytest.raises(UserError, match="is not a run directory"):
        run.open_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", r"config\.json is damaged"),
        ("run.json", "", r"run\.json is damaged"),
        ("run.json", '{"state": "asleep"}', r"run\.json is damaged.*state"),
        ("config.json", '{"recipe": "toy", "epochs": 0}', r"config\.json is damaged"),
    ],
)
def test_damaged_files_are_named(made, name, content, message):
    (made.path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        run.open_run(made.path)


def test_one_process_per_run(made):
    code = f"""
from pathlib import Path
from pipelines.core import run
from pipelines.core.errors import UserError
try:
    with run.locked(run.open_run(Path({str(made.path)!r}))):
        print("free")
except UserError as error:
    print(error)
"""

    def other_process():
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    with run.locked(made):
        assert "another process is training in" in other_process()
    assert other_process() == "free\n"


@pytest.mark.parametrize(
    ("state", "weights", "message"),
    [
        ("running", "final", "is unfinished"),
        ("diverged", "final", "diverged"),
        ("finished", "final", "is missing although"),
        ("running", "best", "is unfinished"),
        ("finished", "best", "is missing although"),
    ],
)
def test_a_missing_model_says_why(made, state, weights, message):
    made.update(state=state)
    with pytest.raises(UserError, match=message):
        run.load_model(made, weights)


@pytest.mark.parametrize("here", ["tensorflow", "jax"])
@pytest.mark.parametrize(("backend", "variable"), [("tensorflow", ""), ("jax", "KERAS_BACKEND=jax ")])
def test_an_unfinished_run_is_finished_on_its_backend_with_the_same_data(made, monkeypatch, here, backend, variable):
    monkeypatch.setenv("KERAS_BACKEND", here)
    made.update(backend=backend)
    resume = f"{variable}highway train --resume {made.path}"
    with pytest.raises(UserError, match=f"Finish it with `{resume}`"):
        run.load_model(made)
    with pytest.raises(UserError, match=f"Finish it with `{resume} --data-dir 'my data'`"):
        run.model_file(made, "best", Path("my data"))
    with pytest.raises(UserError, match=f"resume the run in it: {resume} --devices 2$"):
        run.refuse_existing(made.path, ["--devices", "2"])


@pytest.mark.parametrize(("backend", "variable"), [("tensorflow", []), ("jax", ["KERAS_BACKEND=jax"]), (None, [])])
def test_a_run_is_resumed_on_the_backend_of_its_process(monkeypatch, backend, variable):
    monkeypatch.delenv("KERAS_BACKEND")
    if backend:
        monkeypatch.setenv("KERAS_BACKEND", backend)
    assert shlex.split(run.resuming(Path("my run"))) == [*variable, "highway", "train", "--resume", "my run"]


def test_best_needs_validation(made):
    data = RECORD.data.model_copy(update={"counts": {**COUNTS, "validation": 0}})
    made.update(state="finished", data=data.model_dump())
    with pytest.raises(UserError, match="without validation"):
        run.load_model(made, "best")


def test_a_damaged_model_is_named(tmp_path):
    net = tiny_net()
    made = finished(tmp_path / "digits", net)
    assert run.load_model(made).count_params() == net.count_params()
    path = made.path / "model.keras"
    whole = path.read_bytes()
    for content in (b"", b"not a model", whole[: len(whole) // 2], whole[:-100]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"model\.keras is damaged"):
            run.load_model(made)

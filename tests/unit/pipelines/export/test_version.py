import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.export.version import new_version

ROOT = Path(__file__).parents[4]


def make(model, text="whole"):
    with new_version(model) as (version, folder):
        (folder / "variables").mkdir()
        (folder / "variables" / "a.txt").write_text(text)
    return version


def test_versions_count_up_from_one(tmp_path):
    model = tmp_path / "models" / "demo"
    assert [make(model), make(model)] == [1, 2]
    assert (model / "2" / "variables" / "a.txt").read_text() == "whole"
    assert sorted(entry.name for entry in model.iterdir()) == ["1", "2"]


def test_the_next_number_is_above_all_others(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "0012").write_text("a file")
    (tmp_path / "latest").mkdir()
    # Timestamps that no version may have as a number, and the last that may.
    for number in (2**63 - 1, 2**63, 20261128134127123456):
        (tmp_path / str(number)).mkdir()
    assert make(tmp_path) == 13


def test_no_folder_has_an_integer_name_during_writing(tmp_path):
    with new_version(tmp_path) as (_, folder):
        assert folder.parent == tmp_path
        assert [entry.name.startswith(".") for entry in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize("error", [OSError("disk"), ValueError("bug"), KeyboardInterrupt(), SystemExit(1)])
def test_an_error_leaves_nothing(tmp_path, error):
    def fail():
        with new_version(tmp_path / "models" / "demo") as (_, folder):
            (folder / "saved_model.pb").write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_other_versions_and_files(tmp_path):
    make(tmp_path / "demo")
    (tmp_path / "demo" / "notes.txt").write_text("mine")

    def fail():
        with new_version(tmp_path / "demo"):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert sorted(entry.name for entry in (tmp_path / "demo").iterdir()) == ["1", "notes.txt"]


def test_a_version_is_never_overwritten(tmp_path):
    def late():
        with new_version(tmp_path) as (version, folder):
            (folder / "a.txt").write_text("mine")
            (tmp_path / str(version)).mkdir()
            (tmp_path / str(version) / "b.txt").write_text("of another")

    with pytest.raises(UserError, match="1 was created meanwhile by another program"):
        late()
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "b.txt"]


def test_simultaneous_exports_get_different_numbers(tmp_path):
    with new_version(tmp_path) as (first, _), new_version(tmp_path) as (second, _):
        assert {first, second} == {1, 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_the_number_of_a_failed_export_is_free_again(tmp_path):
    def fail():
        with new_version(tmp_path):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert make(tmp_path) == 1


MANY = """
import sys
from pathlib import Path
from pipelines.export.version import new_version
for _ in range(10):
    with new_version(Path(sys.argv[1])) as (version, folder):
        (folder / "a.txt").write_text(str(version))
"""


def test_many_processes_export_at_once(tmp_path):
    workers = [subprocess.Popen([sys.executable, "-c", MANY, tmp_path / "model"], cwd=ROOT) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    found = {path.name: (path / "a.txt").read_text() for path in (tmp_path / "model").iterdir()}
    assert len(found) == 40
    assert all(name == text for name, text in found.items())


def test_the_folder_of_a_version_is_not_a_model(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="is one version of a model"):
        make(tmp_path / "1")


def test_a_file_is_not_a_model(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used as a folder"):
        make(tmp_path / "file")
    with pytest.raises(UserError, match="cannot be used as a folder"):
        make(tmp_path / "file" / "demo")
    assert (tmp_path / "file").read_text() == ""


def test_permissions_follow_the_umask(tmp_path):
    mask = os.umask(0o022)
    try:
        make(tmp_path)
    finally:
        os.umask(mask)
    assert (tmp_path / "1").stat().st_mode & 0o777 == 0o755

import errno
import os

import pytest

from pipelines.core.errors import UserError
from pipelines.training import metrics_file

ROWS = [{"epoch": float(epoch), "loss": 1 / epoch, "gate/highway_1": 0.25} for epoch in (1, 2, 3)]


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "metrics.csv"
    for row in ROWS:
        metrics_file.append(made, row)
    return made


def test_rows_are_read_as_they_were_written(path):
    assert path.read_text().splitlines()[:2] == ["epoch,loss,gate/highway_1", "1,1,0.25"]
    assert [row["loss"] for row in metrics_file.read(path)] == pytest.approx([1, 1 / 2, 1 / 3], rel=1e-6)
    assert metrics_file.read(path.with_name("none.csv")) == []


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_truncating_keeps_the_first_rows_even_if_the_last_was_cut(path, rows):
    with path.open("a") as file:
        file.write("4,0.2")
    metrics_file.truncate(path, rows)
    assert [row["epoch"] for row in metrics_file.read(path)] == [1, 2, 3][:rows]


def test_truncating_to_nothing_removes_the_head_too(path):
    metrics_file.truncate(path, 0)
    assert not path.exists()
    metrics_file.truncate(path, 0)


def test_fewer_rows_than_epochs_are_refused(path):
    with pytest.raises(UserError, match="fewer rows"):
        metrics_file.truncate(path, 4)


@pytest.mark.parametrize("line", ["4,x,0.2\n", "4,0.2\n"])
def test_a_damaged_row_is_reported(path, line):
    with path.open("a") as file:
        file.write(line)
    with pytest.raises(UserError, match=r"metrics\.csv is damaged"):
        metrics_file.read(path)


def test_a_full_disk_leaves_no_half_of_a_row(path, monkeypatch):
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        metrics_file.append(path, ROWS[0])
    assert path.read_bytes() == before

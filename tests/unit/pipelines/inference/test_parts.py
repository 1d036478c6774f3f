import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import files
from pipelines.core.errors import UserError
from pipelines.inference import parts as module
from pipelines.inference.parts import open_parts

JOB = {"version": 1, "paths": ["photos", "more"]}


def table(*names, job=JOB):
    schema = pa.schema([("path", pa.string())], metadata={"job": json.dumps(job)})
    return pa.table([list(names)], schema=schema)


def begin(out, *groups, job=JOB):
    with open_parts(out, job) as parts:
        for group in groups:
            parts.write(table(*group, job=job))


def finish(out, job=JOB):
    with open_parts(out, job) as parts:
        parts.finish(table(job=job).schema, parts.rows)


def names(out):
    return pq.read_table(out)["path"].to_pylist()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.parquet"


def test_parts_become_a_file_with_their_rows_in_order(out, tmp_path):
    begin(out, "ab", "c")
    assert not out.exists()
    begin(out, "de")
    finish(out)
    assert names(out) == [*"abcde"]
    assert pq.read_schema(out).metadata[b"job"] == json.dumps(JOB).encode()
    assert [*tmp_path.iterdir()] == [out]


def test_more_than_ten_parts_stay_in_order(out):
    begin(out, *(f"{number:03}".split() for number in range(120)))
    finish(out)
    assert names(out) == [f"{number:03}" for number in range(120)]


def test_groups_of_rows_are_large_however_small_the_parts(out, monkeypatch):
    monkeypatch.setattr(module, "GROUP", 4)
    begin(out, *"abcdefghij")
    finish(out)
    assert [pq.ParquetFile(out).metadata.row_group(group).num_rows for group in range(3)] == [4, 4, 2]


def test_a_file_half_written_by_a_killed_process_is_not_a_part(out, tmp_path):
    begin(out, "ab")
    folder = tmp_path / ".out.parquet.parts"
    (folder / ".00000001-x1y2.parquet").write_bytes(b"PAR1 and no more")
    (folder / ".whole-x1y2.parquet").write_bytes(b"PAR1 and no more")
    with open_parts(out, JOB) as parts:
        assert parts.skip(iter("abc")) == 2
        parts.write(table("c"))
    finish(out)
    assert names(out) == [*"abc"]
    assert [*tmp_path.iterdir()] == [out]


@given(st.lists(st.text(max_size=3), max_size=30), st.data())
def test_images_that_have_a_row_are_skipped(tmp_path_factory, every, data):
    out = tmp_path_factory.mktemp("property") / "out.parquet"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(every)), max_size=4)))
    begin(out, *(every[low:high] for low, high in zip([0, *cuts], cuts, strict=False)))
    with open_parts(out, JOB) as parts:
        rest = iter(every)
        assert parts.skip(rest) == (cuts[-1] if cuts else 0)
        parts.write(table(*rest))
    finish(out)
    assert names(out) == every


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ("abX", r"number 3 was c and is now X"),
        ("ab", r"number 3 was c and is now missing"),
        ("", r"number 1 was a and is now missing"),
    ],
)
def test_other_images_are_refused(out, now, message):
    begin(out, "ab", "cd")
    with open_parts(out, JOB) as parts, pytest.raises(UserError, match=message):
        parts.skip(iter(now))
    finish(out)
    assert names(out) == [*"abcd"]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"version": 2}, r"version was 1 and is now 2\. Name its version, MODEL/1, to finish it, name another file"),
        ({"paths": ["photos"]}, r"paths was photos more and is now photos\. Repeat that command to finish it, name an"),
    ],
)
def test_another_job_is_refused_and_loses_nothing(out, job, message):
    begin(out, "ab")
    with pytest.raises(UserError, match=message), open_parts(out, JOB | job):
        pytest.fail("not refused")
    finish(out)
    assert names(out) == [*"ab"]


def test_the_version_of_a_table_s_model_is_named(out):
    job = {"model": "houses 3, 1f8e", "rows": "a.csv, 77aa"}
    begin(out, "ab", job=job)
    for model, advice in (
        ("houses 12, 90b1", r"Name its version, MODEL/3,"),
        ("houses 3, 90b1", "Repeat that command"),
    ):
        message = rf"model was houses 3, 1f8e and is now {model}\. {advice} to finish it, name another file"
        with pytest.raises(UserError, match=message), open_parts(out, job | {"model": model}):
            pytest.fail("not refused")


def test_a_job_without_parts_is_replaced(out, tmp_path):
    folder = tmp_path / ".out.parquet.parts"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    begin(out, "a")
    finish(out)
    assert names(out) == ["a"]


def test_a_file_of_another_job_is_refused_and_kept(out, tmp_path):
    begin(out, "ab")
    finish(out)
    before = out.read_bytes()
    for content in (before, b"something else"):
        out.write_bytes(content)
        with pytest.raises(UserError, match="exists and belongs to another job"), open_parts(out, JOB | {"version": 2}):
            pytest.fail("not refused")
        assert out.read_bytes() == content
        assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_what_differs_from_the_job_of_a_complete_result_is_named(tmp_path, name):
    out = tmp_path / name
    begin(out, "ab")
    finish(out)
    for job, difference in (
        ({"version": 2}, "version was 1 and is now 2"),
        ({"paths": ["more"]}, "paths was photos more and is now more"),
    ):
        message = rf"{name} exists and belongs to another job: {difference}\. Name another file, or remove it"
        with pytest.raises(UserError, match=message), open_parts(out, JOB | job):
            pytest.fail("not refused")
    with open_parts(out, JOB) as parts:
        assert parts.is_complete


@pytest.mark.parametrize("left", [0, 1])
def test_parts_that_vanish_at_the_end_are_missed(out, left):
    begin(out, "ab", "cd")
    with open_parts(out, JOB) as parts:
        for path in parts.paths[left:]:
            path.unlink()
        out.write_bytes(b"the result of another command")
        with pytest.raises(UserError, match=r"parts are missing in .* Repeat the command"):
            parts.finish(table().schema, 4)
    assert out.read_bytes() == b"the result of another command"


def test_a_complete_file_is_left_as_it_is(out, tmp_path):
    begin(out, "ab")
    finish(out)
    with open_parts(out, JOB) as parts:
        assert parts.is_complete
        assert parts.skip(iter("ab")) == 2
    with open_parts(out, JOB) as parts, pytest.raises(UserError, match="complete with 2 images, and there are more"):
        parts.skip(iter("abc"))
    with open_parts(out, JOB) as parts, pytest.raises(UserError, match="number 2 was b and is now missing"):
        parts.skip(iter("a"))
    assert [*tmp_path.iterdir()] == [out]


def test_a_kill_between_the_last_two_steps(out, tmp_path, monkeypatch):
    begin(out, "ab")
    with monkeypatch.context() as patch:
        patch.setattr(module.part_files, "remove", lambda folder: None)
        finish(out)
    assert len([*tmp_path.iterdir()]) == 2
    with open_parts(out, JOB) as parts:
        assert parts.is_complete
    assert [*tmp_path.iterdir()] == [out]
    assert names(out) == [*"ab"]


def test_one_process_at_a_time_writes_a_file(out, tmp_path):
    with open_parts(out, JOB) as parts:
        parts.write(table("a"))
        with pytest.raises(UserError, match="another process is writing"), open_parts(out, JOB):
            pytest.fail("not refused")
        parts.write(table("b"))
    finish(out)
    assert names(out) == [*"ab"]


def test_a_lock_removed_with_its_folder_does_not_count(out, monkeypatch):
    # Another process finishes between opening and acquiring the lock.
    take, handles = files.fcntl.flock, []

    def late(handle, how):
        if not handles:
            (out.parent / ".out.parquet.parts" / "lock").unlink()
        handles.append(handle)
        take(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    begin(out, "a")
    assert len(handles) == 2
    finish(out)
    assert names(out) == ["a"]


def test_simultaneous_writers_wait_or_are_refused(out):
    # All write the same rows: the holder of the lock adds missing ones.
    refused = []

    def work():
        try:
            with open_parts(out, JOB) as parts:
                if not parts.is_complete:
                    for _ in range(parts.skip(iter("abcdef")), 6):
                        parts.write(table("abcdef"[len(parts.paths)]))
                    parts.finish(table().schema, 6)
        except UserError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) < 8
    assert all("another process is writing" in message for message in refused)
    assert names(out) == [*"abcdef"]


def test_nothing_is_left_of_a_job_without_rows(out, tmp_path):
    with open_parts(out, JOB):
        pass
    with pytest.raises(OSError, match="full"), open_parts(out, JOB):
        raise OSError("full")
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_leaves_whole_parts_only(out, monkeypatch):
    begin(out, "ab")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.pq, "write_table", full)
        with pytest.raises(OSError, match="No space"), open_parts(out, JOB) as parts:
            parts.write(table("c"))
    with monkeypatch.context() as patch:
        patch.setattr(module.pq.ParquetWriter, "write_table", full)
        with pytest.raises(OSError, match="No space"):
            finish(out)
    assert not out.exists()
    left = {path.name for path in (out.parent / ".out.parquet.parts").iterdir()}
    assert left == {"00000000.parquet", "job.json", "lock"}
    finish(out)
    assert names(out) == [*"ab"]


def test_a_damaged_part_is_named(out, tmp_path):
    begin(out, "ab")
    part = tmp_path / ".out.parquet.parts" / "00000000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with open_parts(out, JOB) as parts, pytest.raises(UserError, match=r"00000000\.parquet is damaged"):
        parts.skip(iter("ab"))


def test_parts_numbered_by_an_earlier_version_are_refused(out, tmp_path):
    begin(out, "ab", "cd")
    folder = tmp_path / ".out.parquet.parts"
    (folder / "00000002.parquet").rename(folder / "00000001.parquet")
    with open_parts(out, JOB) as parts, pytest.raises(UserError, match=r"written by an earlier version.*remove the f"):
        parts.gaps()


def test_an_unwritable_path_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"), open_parts(tmp_path / "file" / "out.parquet", JOB):
        pytest.fail("not refused")

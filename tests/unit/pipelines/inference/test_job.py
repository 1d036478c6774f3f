import io
import itertools
import re
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.inference import job as jobs
from pipelines.inference import parts
from pipelines.inference.image_ref import ImageRef
from pipelines.inference.job import PredictionJob, run
from pipelines.inference.net_inputs import BATCH
from serving import image_files
from serving.errors import ImageError
from serving.model import open_model
from tests import tiny_model


@pytest.fixture
def said():
    """The output of the console."""
    return io.StringIO()


@pytest.fixture
def job(model, folder, tmp_path):
    """A function that makes a job over the thirty images."""

    def make(*words, out="out.parquet", count=2, explain=False, version=model):
        return PredictionJob(version, tuple(map(str, words or [folder])), tmp_path / out, count, explain)

    return make


@pytest.fixture
def small(monkeypatch):
    """Small parts and batches, so that thirty images fill several."""
    monkeypatch.setattr(jobs, "GROUP", 8)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 4)


@pytest.fixture
def stop(monkeypatch):
    """A function that makes a job fail or be interrupted after a number of parts."""

    def after(count, error=KeyboardInterrupt):
        left, write = itertools.count(count, -1), parts.Parts.write

        def stopping(self, *arguments):
            if next(left) <= 0:
                raise error
            write(self, *arguments)

        monkeypatch.setattr(parts.Parts, "write", stopping)
        return lambda: monkeypatch.setattr(parts.Parts, "write", write)

    return after


def rows(path):
    return pq.read_table(path).to_pylist()


def test_a_row_for_each_image(job, model, folder, said):
    done = run(job(explain=True), Console(file=said))
    found = rows(job().out)
    assert (done.images, done.resumed, done.unreadable) == (30, 0, 0)
    assert [row["path"] for row in found] == sorted(str(path) for path in folder.rglob("*.png"))
    opened = open_model(model)
    for row in found:
        outputs = opened.predict(opened.to_input(image_files.read(Path(row["path"])))[None])
        np.testing.assert_allclose(row["probabilities"], outputs["probabilities"][0], atol=1e-6)
        np.testing.assert_allclose(row["gate_means"], outputs["gate_means"][0], atol=1e-6)
        assert row["label"] == tiny_model.LABELS[int(np.argmax(outputs["probabilities"]))]
        assert len(row["top"]) == 2


def test_an_unreadable_image_gets_an_error_row(job, folder, said):
    (folder / "1" / "04.png").write_bytes(b"not an image")
    (folder / "2" / "gone.png").symlink_to(folder / "nothing")
    assert run(job(), Console(file=said)).unreadable == 2
    bad = {row["path"]: row for row in rows(job().out) if row["error"]}
    assert [*bad] == [str(folder / "1" / "04.png"), str(folder / "2" / "gone.png")]
    first, second = bad.values()
    assert "is not an image" in first["error"]
    assert "there is no file" in second["error"]
    assert first["label"] is first["probabilities"] is None
    assert "2 unreadable" in said.getvalue()


def test_unreadable_images_alone_make_a_table_too(job, tmp_path, said):
    (tmp_path / "bad.png").touch()
    assert run(job(tmp_path / "bad.png"), Console(file=said)).unreadable == 1
    assert rows(job().out)[0]["path"] == str(tmp_path / "bad.png")


def test_folders_globs_and_tar_files_in_one_job(job, folder, encoded, tmp_path, said):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(folder / "1", "in")
    run(job(folder / "0", tmp_path / "*.gz", folder / "2" / "02.png"), Console(file=said))
    found = rows(job().out)
    assert len(found) == 10 + 10 + 1
    by_name = {row["path"].rpartition("/")[2]: row["probabilities"] for row in found}
    run(job(folder, out="all.parquet"), Console(file=said))
    for row in rows(tmp_path / "all.parquet"):
        name = row["path"].rpartition("/")[2]
        assert name not in by_name or by_name[name] == row["probabilities"]


@pytest.mark.parametrize("written", [0, 1, 2])
def test_an_interrupted_job_resumes_and_ends_as_if_uninterrupted(job, said, small, stop, written):
    run(job(out="whole.parquet"), Console(file=said))
    allow = stop(written)
    with pytest.raises(KeyboardInterrupt):
        run(job(), Console(file=said))
    assert not job().out.exists()
    # Without the images of the part that was not written.
    assert (f"{8 * written} images are saved" if written else "Nothing is saved.") in said.getvalue()
    allow()
    done = run(job(), Console(file=said))
    assert done.resumed == 8 * written
    assert done.images == 30
    assert rows(job().out) == rows(job(out="whole.parquet").out)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_unreadable_images_of_earlier_attempts_count(job, folder, said, stop, out):
    for name in ("0/00.png", "0/03.png", "2/29.png"):
        (folder / name).write_bytes(b"not an image")
    allow = stop(1)
    with pytest.raises(KeyboardInterrupt):
        run(job(out=out), Console(file=said))
    allow()
    said.truncate(0)
    done = run(job(out=out), Console(file=said))
    assert (done.images, done.resumed, done.unreadable) == (30, 8, 3)
    assert "3 unreadable" in said.getvalue()
    again = run(job(out=out), Console(file=said))
    assert (again.images, again.resumed, again.unreadable) == (30, 30, 3)


def test_an_interrupted_job_keeps_its_rows_and_says_how_to_resume(job, said, small, monkeypatch):
    left = itertools.count(20, -1)
    calls = jobs.JobProgress.add

    def add(self, images, unreadable):
        calls(self, images, unreadable)
        if next(left) == 15:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs.JobProgress, "add", add)
        with pytest.raises(KeyboardInterrupt):
            run(job(), Console(file=said))
    assert "24 images are saved" in said.getvalue()
    assert "repeat the command to resume" in said.getvalue()
    assert run(job(), Console(file=said)).resumed == 24
    assert len({row["path"] for row in rows(job().out)}) == 30


def test_a_broken_tar_file_is_reported_and_earlier_images_are_kept(job, folder, tmp_path, said, small):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "1", "in")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"a\.tar cannot be read as a tar file.* images are saved"):
        run(job(folder / "0", path, folder / "2"), Console(file=said))
    assert not job().out.exists()
    # Still damaged: the same message, and no new rows.
    with pytest.raises(UserError, match=r"a\.tar cannot be read as a tar file"):
        run(job(folder / "0", path, folder / "2"), Console(file=said))
    path.write_bytes(whole)
    done = run(job(folder / "0", path, folder / "2"), Console(file=said))
    assert done.resumed > 10
    assert done.images == len(rows(job().out)) == 30


def test_a_job_resumes_with_its_whole_parts_after_a_full_disk(job, said, small, stop):
    allow = stop(1, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        run(job(), Console(file=said))
    allow()
    assert run(job(), Console(file=said)).resumed == 8


@pytest.mark.usefixtures("small")
def test_another_model_or_other_images_are_refused(job, folder, tmp_path, said, stop):
    allow = stop(2)
    with pytest.raises(KeyboardInterrupt):
        run(job(), Console(file=said))
    allow()
    other = tiny_model.write(tmp_path / "tiny" / "1", seed=1)
    with pytest.raises(UserError, match="model was tiny"):
        run(job(version=other), Console(file=said))
    with pytest.raises(UserError, match="top was 2 and is now 3"):
        run(job(count=3), Console(file=said))
    (folder / "0" / "00.png").unlink()
    with pytest.raises(UserError, match=r"number 1 was .*00\.png and is now .*03\.png"):
        run(job(), Console(file=said))


def test_a_complete_file_is_not_computed_again(job, folder, said):
    run(job(), Console(file=said))
    before = job().out.stat().st_mtime_ns
    done = run(job(), Console(file=said))
    assert (done.images, done.resumed) == (30, 30)
    assert job().out.stat().st_mtime_ns == before
    with pytest.raises(UserError, match="exists and belongs to another job"):
        run(job(count=3), Console(file=said))


def test_missing_images_are_reported_and_leave_nothing(job, tmp_path, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there are no images in"):
        run(job(tmp_path / "empty"), Console(file=said))
    assert not any(path.name.endswith((".parquet", ".parts")) for path in tmp_path.iterdir())


@pytest.mark.parametrize(("out", "message"), [("empty", "is a folder"), ("out.csv", r"must name a file that ends in")])
def test_invalid_output_paths_are_refused(job, tmp_path, said, out, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message):
        run(job(out=out), Console(file=said))


def test_unsuitable_models_are_refused(job, tmp_path, said):
    with pytest.raises(UserError, match="there is no model"):
        run(job(version=tmp_path / "nothing"), Console(file=said))
    plain = tiny_model.write(tmp_path / "plain" / "1", gates=False)
    with pytest.raises(UserError, match=r"without its gates, or its net has no highway layers\. In the first"):
        run(job(version=plain, explain=True), Console(file=said))
    assert run(job(version=plain), Console(file=said)).images == 30


def test_lines_report_the_progress(job, said, small):
    run(job(), Console(file=said))
    lines = said.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["8", "16", "24", "30"]
    # The total is counted in a thread: it may be late, but is correct.
    totals = [match[1] for line in lines if (match := re.search(r"of (\d+) images  [\d,]+/s", line))]
    assert set(totals) <= {"30"}


def test_a_bar_on_a_terminal(job, said, small):
    run(job(), Console(file=said, force_terminal=True, width=100))
    assert "30 of 30 images" in said.getvalue()


def test_no_more_images_are_in_memory_than_keep_the_threads_busy(job, tmp_path, said, monkeypatch):
    # Counts how far an endless source is read ahead of decoding.
    class Endless:
        taken = 0

        def __iter__(self):
            while Endless.taken < 5000:
                Endless.taken += 1
                yield ImageRef(f"{Endless.taken}", lambda: b"not an image")

        def count(self):
            return 5000

    most = 0

    def decode(content, name, side, grey):
        nonlocal most
        most = max(most, Endless.taken - int(name))
        raise ImageError("none")

    monkeypatch.setattr(jobs.environment, "cores", lambda: 2)
    monkeypatch.setattr(jobs.inputs, "sources", lambda *_: [Endless()])
    monkeypatch.setattr("serving.image_files.decode", decode)
    assert run(job(), Console(file=said)).unreadable == 5000
    assert most <= BATCH * jobs.AHEAD * 2

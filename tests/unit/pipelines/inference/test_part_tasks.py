"""Parts of a job as tasks, which any process may perform, in any order."""

import io
import math
import tarfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.data.own import prepare
from pipelines.inference import job as jobs
from pipelines.inference import part_tasks, table_job
from pipelines.inference.job import PredictionJob, run
from pipelines.inference.part_tasks import grouped
from serving.errors import ImageError
from tests import table_model, tiny_model
from tests.executors import OnNode, Shuffled

QUIET = Console(file=io.StringIO())


@pytest.fixture
def job(model, folder, tmp_path):
    """A function that makes a job over the thirty images."""

    def make(*words, out="out.parquet", count=2, explain=True, version=model):
        return PredictionJob(version, tuple(map(str, words or [folder])), tmp_path / out, count, explain)

    return make


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Batches of four images, parts of two batches."""
    monkeypatch.setattr(jobs, "GROUP", 8)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 4)
    monkeypatch.setattr(part_tasks, "LEAST", 8)
    part_tasks._opened.cache_clear()


def rows(path):
    return pq.read_table(path).to_pylist()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_file_equals_that_of_one_process(job, folder, tmp_path):
    (folder / "1" / "04.png").write_bytes(b"not an image")
    (folder / "2" / "gone.png").symlink_to(folder / "nothing")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(folder / "0", "in")
    words = (folder, tmp_path / "a.tar.gz", folder / "1" / "01.png")
    alone, executor = run(job(*words, out="alone.parquet"), QUIET), Shuffled()
    done = run(job(*words), QUIET, executor)
    assert (done.images, done.unreadable, done.resumed) == (alone.images, 2, 0)
    assert executor.keys == [f"part {first:08}" for first in range(0, alone.images, 8)]
    assert pq.read_table(job().out).equals(pq.read_table(tmp_path / "alone.parquet"))
    assert names(tmp_path) == ["a.tar.gz", "alone.parquet", "images", "out.parquet"]


@pytest.fixture
def processes(monkeypatch):
    """A function that makes an executor in place of processes, which take over after the first batch; it is kept."""
    monkeypatch.setattr(jobs, "SOON", 0.0)
    monkeypatch.setattr(jobs, "START", -math.inf)
    monkeypatch.setattr(jobs.environment, "cores", lambda: 2)
    monkeypatch.setattr(jobs.JobProgress, "left", lambda _, row: 30 - row)

    def make(logs):
        assert logs.is_dir()
        make.made.append((logs, Shuffled()))
        return make.made[-1][1]

    make.made = []
    return make


@pytest.fixture(params=["folder", "archive"])
def words(request, folder, monkeypatch):
    """Small images, for which processes can take over."""
    if request.param == "folder":
        return [folder]
    # They are recognized by a full batch.
    monkeypatch.setattr(jobs, "BATCH", 4)
    return [packed(folder)]


def test_processes_take_over_from_threads(job, tmp_path, processes, words):
    run(job(*words, out="alone.parquet"), QUIET)
    done = run(job(*words), QUIET, processes=processes)
    assert (done.images, done.resumed) == (30, 0)
    ((logs, executor),) = processes.made
    assert executor.keys == ["part 00000004", "part 00000012", "part 00000020", "part 00000028"]
    assert not logs.exists()
    assert pq.read_table(job().out).equals(pq.read_table(tmp_path / "alone.parquet"))
    assert {*names(tmp_path)} - {"a.tar"} == {"alone.parquet", "images", "out.parquet"}


def packed(folder):
    """Writes an archive of the images in a folder, and returns its path."""
    with tarfile.open(folder.parent / "a.tar", "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.add(path)
    return folder.parent / "a.tar"


@pytest.mark.parametrize(
    ("used", "left", "pay"),
    [(1.5, 8.0, True), (1.5, 2.0, False), (1.9, 8.0, False), (1.9, 25.0, True), (1.5, 0, False)],
)
def test_processes_pay_if_threads_leave_cores_idle_for_longer_than_their_start(monkeypatch, used, left, pay):
    monkeypatch.setattr(jobs.environment, "cores", lambda: 2)
    assert jobs.processes_pay(1.0, used, left) == pay


@pytest.mark.parametrize("reason", ["short", "uncounted", "large images of an archive", "core"])
def test_threads_keep_what_processes_would_not_save(job, folder, processes, monkeypatch, reason):
    words = [folder]
    if reason == "short":
        monkeypatch.setattr(jobs, "START", math.inf)
    elif reason == "uncounted":
        monkeypatch.setattr(jobs.JobProgress, "left", lambda *_: 0)
    elif reason == "core":
        monkeypatch.setattr(jobs.environment, "cores", lambda: 1)
    else:
        words = [packed(folder)]
    assert run(job(*words), QUIET, processes=processes).images == 30
    assert processes.made == []


def test_a_split_of_a_data_set_equals_that_of_one_process(model, mnist_5k, tmp_path):
    def written(name, executor):
        job = PredictionJob(model, ("tfds:mnist_5k/test",), tmp_path / name, 2, data_dir=mnist_5k)
        return run(job, QUIET, executor).images

    assert written("alone.parquet", None) == written("out.parquet", Shuffled()) > 0
    assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(tmp_path / "alone.parquet"))


def test_a_split_of_other_data_is_another_job(model, encoded, tmp_path, monkeypatch):
    # The rows of both have the same names.
    for name in ("first", "second"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        # As many bytes in another order, and so the same description.
        numbers = [*range(6)] if name == "first" else [3, 1, 2, 0, 4, 5]
        images = {"image": [encoded(number) for number in numbers], "label": [*"abc"] * 2}
        pq.write_table(pa.table(images), tmp_path / "images.parquet")
        prepared = prepare.prepare(prepare.read(str(tmp_path / "images.parquet"), None, QUIET), (8, 8, 3), QUIET)
        (tmp_path / f"data-{name}").mkdir()
        Path(prepared).rename(tmp_path / f"data-{name}" / "images")
    word, out = "tfds:./images/train", tmp_path / "out.parquet"
    monkeypatch.chdir(tmp_path / "data-first")
    assert run(PredictionJob(model, (word,), out, 2), QUIET).images > 0
    monkeypatch.chdir(tmp_path / "data-second")
    with pytest.raises(UserError, match=r"belongs to another job: data was \S+ and is now "):
        run(PredictionJob(model, (word,), out, 2), QUIET)


def test_images_of_a_parquet_file_equal_those_of_one_process(model, encoded, tmp_path, monkeypatch):
    # They are prepared as a data set, whose folder is named.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    images = {"image": [encoded(number) for number in range(30)], "label": [*"abc"] * 10}
    pq.write_table(pa.table(images), tmp_path / "images.parquet")
    prepared = prepare.prepare(prepare.read(str(tmp_path / "images.parquet"), None, QUIET), (8, 8, 3), QUIET)

    def written(name, executor=None):
        job = PredictionJob(model, (f"tfds:{prepared}/train",), tmp_path / name, 2)
        return run(job, QUIET, executor).images

    executor = Shuffled()
    assert written("alone.parquet") == written("out.parquet", executor) > 8
    assert len(executor.keys) > 1
    assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(tmp_path / "alone.parquet"))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 99)), max_size=3), st.booleans())
def test_attempts_of_any_kind_continue_each_other(job, tmp_path, attempts, alone):
    if not (whole := tmp_path / "whole.parquet").exists():
        run(job(out="whole.parquet"), QUIET)
    out = tmp_path / "out.parquet"
    for most, seed in attempts:
        with suppress(KeyboardInterrupt):
            run(job(), QUIET, Shuffled(seed, most=most))
    # Parts have eight rows, the last one six.
    kept = list(out.with_name(".out.parquet.parts").glob("[0-9]*.parquet"))
    written = 30 if out.exists() else sum(pq.read_metadata(part).num_rows for part in kept)
    done = run(job(), QUIET, None if alone else Shuffled(1))
    assert (done.images, done.resumed) == (30, written)
    assert pq.read_table(out).equals(pq.read_table(whole))
    out.unlink()
    assert names(tmp_path) == ["images", "whole.parquet"]


def test_a_process_that_is_late_adds_nothing(job, tmp_path):
    # A task of an earlier attempt still runs, and writes its part after another attempt has written it.
    late = []

    class Lost(Shuffled):
        def submit(self, key, task, function):
            super().submit(key, task, function)
            late.append(lambda: function(task))

    with pytest.raises(KeyboardInterrupt):
        run(job(), QUIET, Lost(most=1))
    for perform in late[:2]:
        perform()
    run(job(), QUIET, Shuffled(2))
    with pytest.raises(UserError, match="All machines must have the folder of --out"):
        late[2]()
    assert [row["path"] for row in rows(job().out)] == sorted({row["path"] for row in rows(job().out)})
    assert len(rows(job().out)) == 30
    assert names(tmp_path) == ["images", "out.parquet"]


@pytest.mark.parametrize("executor", [None, Shuffled()])
def test_a_folder_has_the_parts_as_files(job, tmp_path, executor):
    run(job(out="whole.parquet"), QUIET)
    assert run(job(out="all"), QUIET, executor).images == 30
    found = pyarrow.dataset.dataset(tmp_path / "all").to_table()
    assert found.equals(pq.read_table(tmp_path / "whole.parquet"))
    assert names(tmp_path / "all") == [f"{first:08}.parquet" for first in range(0, 30, 8)]
    assert run(job(out="all"), QUIET).resumed == 30
    with pytest.raises(UserError, match="exists and belongs to another job"):
        run(job(out="all", count=1), QUIET)
    assert names(tmp_path) == ["all", "images", "whole.parquet"]


def test_a_folder_that_was_renamed_by_a_killed_process_is_cleared(job, tmp_path):
    run(job(out="all"), QUIET)
    for name in ("job.json", "lock"):
        (tmp_path / "all" / name).touch()
    assert run(job(out="all"), QUIET).resumed == 30
    assert names(tmp_path / "all") == [f"{first:08}.parquet" for first in range(0, 30, 8)]


def test_images_that_change_between_attempts_are_refused(job, folder):
    with pytest.raises(KeyboardInterrupt):
        run(job(), QUIET, Shuffled(seed=3, most=2))
    kept = sorted(job().out.with_name(".out.parquet.parts").glob("[0-9]*.parquet"))
    name = pq.read_table(kept[-1])["path"][0].as_py()
    Path(name).unlink()
    for executor in (Shuffled(), None):
        with pytest.raises(UserError, match=f"was {name} and is now"):
            run(job(), QUIET, executor)
    assert not job().out.exists()


def test_images_that_vanish_at_the_end_are_refused(job, folder):
    with pytest.raises(KeyboardInterrupt):
        run(job(), QUIET, Shuffled(seed=3, most=2))
    kept = sorted(job().out.with_name(".out.parquet.parts").glob("[0-9]*.parquet"))
    last = pq.read_table(kept[-1])["path"].to_pylist()
    assert int(kept[-1].stem) > int(kept[0].stem) + 8
    for path in sorted(map(str, folder.rglob("*.png"))):
        if path >= last[0]:
            Path(path).unlink()
    with pytest.raises(UserError, match=f"was {last[0]} and is now missing"):
        run(job(), QUIET, Shuffled())


def test_a_broken_archive_is_reported_and_earlier_images_are_kept(job, folder, tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "1", "in")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"a\.tar cannot be read as a tar file.* images are saved"):
        run(job(folder / "0", path, folder / "2"), QUIET, Shuffled())
    path.write_bytes(whole)
    done = run(job(folder / "0", path, folder / "2"), QUIET, Shuffled())
    assert done.resumed > 10
    assert done.images == len(rows(job().out)) == 30


def test_a_machine_without_the_same_model_is_refused(job, tmp_path):
    version = tiny_model.write(tmp_path / "mine" / "1")

    class Elsewhere(Shuffled):
        def finished(self, timeout):
            (version / "manifest.json").write_text((version / "manifest.json").read_text() + "\n")
            return super().finished(timeout)

    with pytest.raises(UserError, match=r"mine/1 on .* is not the model that the job began with"):
        run(job(version=version), QUIET, Elsewhere())


def test_a_machine_without_the_images_writes_no_error_rows(job, folder):
    class Elsewhere(Shuffled):
        def finished(self, timeout):
            if folder.exists():
                folder.rename(folder.with_name("there"))
            return super().finished(timeout)

    with pytest.raises(UserError, match=r"\.png is missing on .* All machines must have the images"):
        run(job(), QUIET, Elsewhere())


def test_an_error_of_a_node_names_it(job, monkeypatch):
    def refuse(*_):
        raise UserError("s3://bucket cannot be used with the credentials of this machine.")

    monkeypatch.setattr(part_tasks, "written", refuse)
    with pytest.raises(UserError, match=r"credentials of this machine\. This was on the node node3\."):
        run(job(), QUIET, OnNode())


def test_a_bug_shows_where_it_is(job, monkeypatch):
    def wrong(*_):
        raise ZeroDivisionError("so")

    monkeypatch.setattr(part_tasks, "written", wrong)
    with pytest.raises(UserError, match=r"test_part_tasks\.py(.|\n)*ZeroDivisionError: so"):
        run(job(), QUIET, Shuffled())


def test_errors_of_images_are_rows_and_cross_processes(job, monkeypatch):
    monkeypatch.setattr(
        "pipelines.inference.inputs.Path", lambda path: (_ for _ in ()).throw(ImageError(f"{path} is gone"))
    )
    found = run(job(), QUIET, Shuffled())
    assert found.unreadable == 30
    assert all(row["error"] == f"{row['path']} is gone" for row in rows(job().out))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_of_a_table_are_parts_too(tmp_path, monkeypatch, name):
    monkeypatch.setattr("pipelines.inference.tables.BATCH", 10)
    monkeypatch.setattr(part_tasks, "LEAST", 20)
    version = table_model.write(tmp_path / "houses" / "1", regression=True)
    lines = [f"{number % 9},{number},Rome,{number % 2}" for number in range(95)]
    (tmp_path / "rows.csv").write_text("\n".join(["rooms,age,city,price", *lines]) + "\n")
    pq.write_table(pyarrow.csv.read_csv(tmp_path / "rows.csv"), tmp_path / "rows.parquet")

    def predict(out, executor=None):
        return table_job.run(PredictionJob(version, (str(tmp_path / name),), tmp_path / out, 3), QUIET, executor)

    alone = predict("alone.parquet")
    with pytest.raises(KeyboardInterrupt):
        predict("out.parquet", Shuffled(1, most=2))
    assert predict("out.parquet", Shuffled(2)).result.resumed == 40
    assert predict("all", Shuffled(3)).found.score() == alone.found.score()
    for out in ("out.parquet", "all"):
        assert pq.read_table(tmp_path / out).equals(pq.read_table(tmp_path / "alone.parquet"))


def test_parts_shrink_towards_the_end():
    batches = [(row, range(4)) for row in range(0, 400, 4)]
    sizes = [4 * len(group) for _, group in grouped(batches, lambda row: max(8, (400 - row) // 8))]
    assert sum(sizes) == 400
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-2]) == (52, 8)


def test_parts_are_no_longer_than_a_few_seconds():
    batches = [(row, range(4)) for row in range(0, 4000, 4)]
    assert {len(group) for _, group in grouped(batches, lambda row: 10**9)} == {64, 1000 % 64}

"""Predictions with model, images and result in a bucket, on fsspec's file system in memory."""

import io
import itertools
import tarfile
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.core.url import Url
from pipelines.inference import job as jobs
from pipelines.inference import part_tasks, stored_model, table_job
from pipelines.inference.inputs import Listing, sources
from pipelines.inference.job import PredictionJob, run
from pipelines.verbs.cli import main
from serving import manifest
from tests import table_model, tiny_model
from tests.dying_store import dying
from tests.executors import Shuffled

QUIET = Console(file=io.StringIO())
numbers = itertools.count()


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """Batches of four images, parts of two batches; a cache of its own."""
    monkeypatch.setattr(jobs, "GROUP", 8)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 4)
    monkeypatch.setattr(part_tasks, "LEAST", 8)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    part_tasks._opened.cache_clear()


@pytest.fixture
def bucket(model, folder, tmp_path):
    """A bucket with the model and thirty images, of which one is unreadable; the folder has the same images."""
    (folder / "1" / "04.png").write_bytes(b"not an image")
    (folder / "1" / "notes.txt").write_text("no image")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(folder / "0", "in")
    made = Url(f"memory://predicted-{next(numbers)}")
    upload(model, made / "models" / "tiny")
    upload(folder, made / "images")
    (made / "a.tar").put(tmp_path / "a.tar")
    return made


def upload(folder, url):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (url / path.relative_to(folder).as_posix()).put(path)


def remote(bucket, out, *words):
    """A job by URLs only."""
    images = tuple(map(str, words or (bucket / "images", bucket / "a.tar", bucket / "images/2/02.png")))
    return PredictionJob(bucket / "models" / "tiny", images, bucket / out, 2, explain=True)


@pytest.fixture
def whole(model, folder, tmp_path, bucket):
    """The rows of a job on local files."""
    words = tuple(map(str, (folder, tmp_path / "a.tar", folder / "2" / "02.png")))
    run(PredictionJob(model, words, tmp_path / "whole.parquet", 2, explain=True), QUIET)
    # They differ in the start of each path only, which is also in the reason why an image is unreadable.
    return [
        [text(value).replace(str(folder), f"{bucket}/images").replace(str(tmp_path), str(bucket)) for value in row]
        for row in rows(tmp_path / "whole.parquet")
    ]


def rows(place):
    if isinstance(place, Url):
        found = [one.url.read_bytes() for one in place.files()]
        return [[*row.values()] for one in found for row in pq.read_table(io.BytesIO(one)).to_pylist()]
    return [[*row.values()] for row in pq.read_table(place).to_pylist()]


def text(value):
    return str(value)


def texts(place):
    return [[*map(text, row)] for row in rows(place)]


def left(bucket):
    """The objects besides those of the fixture, by their folder or name."""
    names = {str(one.url).removeprefix(f"{bucket}/").partition("/")[0] for one in bucket.files()}
    return sorted(names - {"models", "images", "a.tar"})


@pytest.mark.parametrize("out", ["out.parquet", "out"])
@pytest.mark.parametrize("executor", [None, Shuffled()])
def test_the_rows_are_those_of_local_files(bucket, whole, out, executor):
    result = run(remote(bucket, out), QUIET, executor)
    assert (result.images, result.unreadable) == (41, 1)
    assert texts(bucket / out) == whole
    assert left(bucket) == [out]
    again = run(remote(bucket, out), QUIET)
    assert (again.images, again.resumed, left(bucket)) == (41, 41, [out])


@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_a_job_resumes_whenever_the_store_dies(bucket, whole, out):
    for operations in itertools.count():
        with dying(operations) as failures, suppress(UserError):
            run(remote(bucket, out), QUIET, Shuffled(seed=operations))
        if not failures:
            break
        # A result that is there and not whole can be recognized by the description of its job.
        complete = (bucket / out).exists() and not (bucket / f".{out}.parts" / "job.json").exists()
        assert not complete or texts(bucket / out) == whole
    assert operations > 3
    assert texts(bucket / out) == whole
    assert left(bucket) == [out]


def test_parts_of_a_removed_result_do_not_count(bucket):
    with dying(10_000), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Url, "rmtree", lambda self: None)
        run(remote(bucket, "out.parquet"), QUIET)
    assert left(bucket) == [".out.parquet.parts", "out.parquet"]
    (bucket / "out.parquet").unlink()
    assert run(remote(bucket, "out.parquet"), QUIET).resumed == 0
    assert left(bucket) == ["out.parquet"]


def test_another_result_is_refused_and_kept(bucket):
    run(remote(bucket, "out.parquet"), QUIET)
    before = (bucket / "out.parquet").read_bytes()
    with pytest.raises(UserError, match="exists and belongs to another job"):
        run(remote(bucket, "out.parquet", bucket / "images"), QUIET)
    assert (bucket / "out.parquet").read_bytes() == before
    with pytest.raises(UserError, match="images is a folder"):
        run(remote(bucket, "images"), QUIET)


def test_an_image_that_disappears_gets_an_error(bucket):
    listed = sources([str(bucket / "images")], None)
    (bucket / "images/0/00.png").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.inference.inputs.sources", lambda *_: listed)
        assert run(remote(bucket, "out.parquet"), QUIET).unreadable == 2
    assert f"{bucket}/images/0/00.png does not exist." in rows(bucket / "out.parquet")[0]


def test_nothing_at_a_url_is_an_error(bucket):
    with pytest.raises(UserError, match=f"there is nothing at {bucket}/photos"):
        sources([f"{bucket}/photos"], None)


def test_globs_are_those_of_local_files(bucket, folder):
    (bucket / "images/[0]/00.png").put(folder / "0" / "00.png")
    (folder / "[0]").mkdir()
    (folder / "0" / "00.png").rename(folder / "[0]" / "00.png")
    (bucket / "images/0/00.png").unlink()

    def names(*words):
        return [*Listing(sources([*map(str, words)], None)).names()]

    for glob in ("*/0[0-2].png", "**/*.png", "**", "[02]", "?/*", "[0]", "1/notes.*"):
        local = [name.replace(str(folder), f"{bucket}/images") for name in names(folder / glob)]
        assert names(f"{bucket}/images/{glob}") == local != []
    assert len(names(f"{bucket}/*.tar")) == 10
    with pytest.raises(UserError, match=r"there is nothing at memory://predicted-\d+/images/\*\.jpg\. Expected"):
        names(f"{bucket}/images/*.jpg")


def test_objects_that_match_are_listed_together(bucket, monkeypatch):
    """A request for each would take an hour for 100,000 images."""
    store, asked = bucket._store, []
    info = store.info
    monkeypatch.setattr(store, "info", lambda path, **options: (asked.append(path), info(path, **options))[1])
    assert len(sources([f"{bucket}/images/*/*.png"], None)) == 30
    assert len(asked) < 10


def test_a_model_is_downloaded_once(bucket, tmp_path, monkeypatch):
    tiny_model.write(tmp_path / "tiny" / "2", seed=1)
    place = bucket / "models" / "tiny"
    # A version without its manifest is not one yet.
    (place / "3" / "model.onnx").write_bytes(b"half")
    upload(tmp_path / "tiny", place)
    folder = stored_model.local(place)
    assert (folder.parent.name, folder.name) == ("tiny", "2")
    assert stored_model.local(place / "1").name == "1"
    monkeypatch.setattr(stored_model, "_download", None)
    assert stored_model.local(place) == folder


def test_a_damaged_model_is_refused_and_not_kept(bucket, tmp_path):
    place = bucket / "models" / "tiny"
    graph = place / "1" / manifest.ONNX
    size = graph.size()
    for content, reason in (
        (bytes(size), "is damaged: its SHA-256 is"),
        (b"half", f"has 4 bytes, and the manifest says {size:,} bytes: the version has not been uploaded completely"),
    ):
        graph.write_bytes(content)
        with pytest.raises(UserError, match=f"^{graph} {reason}"):
            stored_model.local(place)
    assert not [*(tmp_path / "cache").rglob("*.onnx")]
    with pytest.raises(UserError, match=f"{bucket}/images is not a model"):
        stored_model.local(bucket / "images")


def test_a_model_that_is_removed_while_it_is_read_is_named(bucket, monkeypatch):
    place, below = bucket / "models" / "tiny", Url.below

    def listed(url):
        found = below(url)
        (place / "1" / manifest.ONNX).unlink()
        return found

    monkeypatch.setattr(Url, "below", listed)
    with pytest.raises(UserError, match=f"{place}/1/{manifest.ONNX} has just been removed. Run the command again"):
        stored_model.local(place)


def test_a_table_and_its_result_may_be_in_a_bucket(tmp_path, capsys):
    model = table_model.write(tmp_path / "houses" / "1", regression=True).parent
    bucket = Url(f"memory://predicted-{next(numbers)}")
    upload(model, bucket / "houses")
    (bucket / "houses.csv").write_bytes(b"rooms,age,city,price\n4,10,Rome,300\n2,30,Paris,170\n")
    words = ["predict", str(bucket / "houses"), str(bucket / "houses.csv")]
    assert main([*words, "--out", str(bucket / "prices.parquet")]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{bucket}/prices.parquet: 2 rows; MAE ")
    assert f"{bucket}/houses/1 is the newest version of {bucket}/houses" in shown.err
    assert main([*words, "--out", str(bucket / "prices.parquet")]) == 0
    assert "is already complete, with 2 rows" in capsys.readouterr().out
    assert pa.BufferReader((bucket / "prices.parquet").read_bytes()).size() > 0
    assert main(words) == 0
    assert "2 rows" in capsys.readouterr().out
    (bucket / "houses.csv").write_bytes(b"rooms,age\n4,10\n")
    assert main(words) == 2
    assert f"{bucket}/houses.csv lacks the column city" in capsys.readouterr().err


def test_a_table_is_predicted_in_parts_by_other_processes(tmp_path):
    model = table_model.write(tmp_path / "houses" / "1", regression=True).parent
    bucket = Url(f"memory://predicted-{next(numbers)}")
    upload(model, bucket / "houses")
    path = tmp_path / "houses.csv"
    path.write_text("rooms,age,city\n" + "4,10,Rome\n2,30,Paris\n" * 20)
    table_job._opened.cache_clear()
    for place, out, executor in ((model, tmp_path / "a.parquet", None), (bucket / "houses", bucket / "b", Shuffled())):
        table_job.run(PredictionJob(place, (str(path),), out, 2), QUIET, executor)
    assert rows(bucket / "b") == rows(tmp_path / "a.parquet")


class Newer(Shuffled):
    """Runs tasks after this program has been called, as when a newer version appears during a job."""

    def __init__(self, appear):
        super().__init__()
        self.appear = appear

    def submit(self, *task):
        if not self.keys:
            self.appear()
        super().submit(*task)


@pytest.mark.parametrize("place", ["models/tiny", "models/tiny/1"])
def test_the_version_of_the_start_predicts_all_images(bucket, whole, tmp_path, place):
    newer = Newer(lambda: upload(tiny_model.write(tmp_path / "2", seed=1), bucket / "models" / "tiny" / "2"))
    job = replace(remote(bucket, "out.parquet"), model=bucket / place)
    assert run(job, QUIET, newer).images == 41
    assert texts(bucket / "out.parquet") == whole
    assert stored_model.local(bucket / "models" / "tiny").name == "2"


def test_the_version_of_the_start_predicts_all_rows(tmp_path):
    bucket = Url(f"memory://predicted-{next(numbers)}")
    upload(table_model.write(tmp_path / "houses" / "1", regression=True), bucket / "houses" / "1")
    path = tmp_path / "houses.csv"
    path.write_text("rooms,age,city\n" + "4,10,Rome\n2,30,Paris\n" * 20)
    table_job._opened.cache_clear()
    newer = Newer(lambda: upload(table_model.write(tmp_path / "2", gates=False), bucket / "houses" / "2"))
    table_job.run(PredictionJob(bucket / "houses", (str(path),), bucket / "out", 2), QUIET, newer)
    assert len(rows(bucket / "out")) == 40


def test_images_may_be_in_several_stores(bucket, folder):
    other = Url(f"memory://predicted-{next(numbers)}")
    (other / "a.png").put(folder / "0" / "00.png")
    run(remote(bucket, "out.parquet", bucket / "images/0", f"file://{folder}/0", other / "a.png"), QUIET)
    found = rows(bucket / "out.parquet")
    names = [f"file://{path}" for path in sorted(folder.glob("0/*"))]
    assert [row[0] for row in found[10:]] == [*names, f"{other}/a.png"]
    assert [row[1:] for row in found[10:]] == [row[1:] for row in [*found[:10], found[0]]]
    assert {row[1] for row in found} == {None}


def test_a_few_images_are_printed(bucket, capsys):
    words = [str(bucket / "images/0"), str(bucket / "images/1/04.png")]
    with pytest.raises(SystemExit):
        main(["predict", str(bucket / "models/tiny"), *words, "--format", "json"])
    shown = capsys.readouterr()
    assert shown.out.count(f'"file": "{bucket}/images/0/') == 10
    assert f"{bucket}/images/1/04.png" in shown.err


def test_a_table_that_is_only_assembled_was_not_complete_before_and_has_its_score(tmp_path, capsys, monkeypatch):
    model = table_model.write(tmp_path / "houses" / "1", regression=True).parent
    (tmp_path / "houses.csv").write_text("rooms,age,city,price\n4,10,Rome,300\n2,30,Paris,170\n")
    out = tmp_path / "prices.parquet"
    job = PredictionJob(model, (str(tmp_path / "houses.csv"),), out, 3)
    with monkeypatch.context() as killed:
        killed.setattr(table_job.Parts, "finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            table_job.run(job, QUIET)
    assert main(["predict", str(model), *job.inputs, "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 2 rows (2 by earlier attempts); MAE ")


def test_parts_of_a_table_with_fewer_columns_are_refused(tmp_path, monkeypatch):
    model = table_model.write(tmp_path / "houses" / "1", regression=True).parent
    (tmp_path / "houses.csv").write_text("rooms,age,city\n4,10,Rome\n2,30,Paris\n")
    job = PredictionJob(model, (str(tmp_path / "houses.csv"),), tmp_path / "prices.parquet", 3)
    with monkeypatch.context() as killed:
        killed.setattr(table_job.Parts, "finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            table_job.run(job, QUIET)
    (part,) = (tmp_path / ".prices.parquet.parts").glob("*.parquet")
    pq.write_table(pq.read_table(part).drop_columns("value"), part)
    with pytest.raises(UserError, match="earlier version of this program without the column value"):
        table_job.run(job, QUIET)


def test_rows_that_the_same_command_writes_elsewhere_in_the_meantime_count(bucket, whole, monkeypatch):
    job, check = remote(bucket, "out.parquet"), jobs.Parts.check_columns

    def meanwhile(parts, schema):
        with monkeypatch.context() as elsewhere, suppress(KeyboardInterrupt):
            elsewhere.setattr(jobs.Parts, "check_columns", check)
            elsewhere.setattr(jobs.Parts, "finish", stopped)
            run(job, QUIET)
        check(parts, schema)

    monkeypatch.setattr(jobs.Parts, "check_columns", meanwhile)
    assert run(job, QUIET).images == 41
    assert texts(bucket / "out.parquet") == whole


def stopped(*_):
    raise KeyboardInterrupt

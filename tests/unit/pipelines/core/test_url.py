"""Places by URL, on fsspec's file system in memory."""

import functools
import itertools
import os
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pipelines.core import url as module
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.core.url import Location, Url, fetch, is_url, location, read_all

numbers = itertools.count()


@pytest.fixture
def bucket():
    """A new bucket in memory."""
    return Url(f"memory://bucket-{next(numbers)}")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("s3://bucket/runs/x", True),
        ("memory://a", True),
        ("runs/x", False),
        ("tfds:mnist/test", False),
        ("C:/x", False),
    ],
)
def test_a_url_names_a_protocol(word, expected):
    assert is_url(word) == expected
    assert str(location(word)) == word


def test_parts_of_a_url_are_those_of_a_path(bucket):
    place = bucket / "runs" / "a.parquet"
    assert (place.name, place.suffix, place.parent) == ("a.parquet", ".parquet", bucket / "runs")
    assert place.with_name("b") == bucket / "runs" / "b"
    assert location("s3://bucket/runs/") == Url("s3://bucket/runs")
    assert Url("s3://bucket").parent / "bucket" == Url("s3://bucket")


def test_objects_of_several_stores_are_read_together(bucket, tmp_path):
    (bucket / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"second")
    first, second, none = bucket / "a", Url(f"file://{tmp_path}/b"), Url(f"file://{tmp_path}/c")
    assert read_all([first, second, none, first]) == [b"first", b"second", None, b"first"]
    assert read_all([]) == []


def test_objects_are_listed_in_the_order_of_files(bucket):
    for name in ("x/a.png", "x/a-b.png", "x/a/b.png", "xy.png"):
        (bucket / name).write_bytes(b"abc")
    listed = (bucket / "x").files()
    # A flat listing of objects would have a-b.png first.
    assert [str(one.url).removeprefix(f"{bucket}/") for one in listed] == ["x/a/b.png", "x/a-b.png", "x/a.png"]
    assert [one.size for one in listed] == [3, 3, 3]
    assert (bucket / "x").below() == {"a.png": 3, "a-b.png": 3, "a/b.png": 3}
    assert [one.url for one in (bucket / "xy.png").files()] == [bucket / "xy.png"]
    assert ((bucket / "nothing").files(), (bucket / "nothing").below()) == ([], {})


def test_objects_are_written_read_copied_and_removed(bucket, tmp_path):
    place = bucket / "folder" / "name"
    assert not place.exists()
    (tmp_path / "file").write_bytes(b"content")
    place.put(tmp_path / "file")
    assert (place.exists(), place.is_file(), place.parent.is_dir(), place.is_dir()) == (True, True, True, False)
    place.copy(bucket / "copy")
    assert read_all([bucket / "copy", bucket / "missing", place]) == [b"content", None, b"content"]
    fetch([(place, tmp_path / "new" / "a"), (bucket / "copy", tmp_path / "b")])
    assert (tmp_path / "new" / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"content"
    with place.open() as file:
        assert (file.read(3), file.seek(1), file.read()) == (b"con", 1, b"ontent")
    assert place.read_range(1, 4) == b"ont"
    place.unlink()
    place.unlink()
    assert not place.exists()
    (bucket / "copy").rmtree()
    assert bucket.files() == []


def test_the_stamp_of_an_object_changes_with_its_content(bucket):
    (bucket / "x" / "a").write_bytes(b"1")
    (bucket / "x" / "b").write_bytes(b"1")
    before = (bucket / "x").files()
    assert (bucket / "x").files() == before
    (bucket / "x" / "b").write_bytes(b"2")
    after = (bucket / "x").files()
    assert [one.stamp == other.stamp for one, other in zip(before, after, strict=True)] == [True, False]


def test_bytes_are_counted_while_they_arrive(bucket, tmp_path):
    (bucket / "a").write_bytes(b"content")
    (bucket / "b").write_bytes(b"more")
    counts = []
    fetch([(bucket / "a", tmp_path / "a"), (bucket / "b", tmp_path / "b")], counts.append)
    assert sum(counts) == 11


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the files of a folder with their times, and prints nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture
def web_folder(tmp_path):
    """A folder, and its URL on a web server."""
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, Url(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def test_a_file_on_a_web_server_is_read(web_folder, tmp_path):
    folder, server = web_folder
    (folder / "a.csv").write_bytes(b"content")
    url = server / "a.csv"
    assert (url.exists(), url.is_file(), url.read_bytes(), url.below()) == (True, True, b"content", {})
    assert read_all([url, server / "missing"]) == [b"content", None]
    with url.open() as file:
        assert (file.read(3), file.tell(), file.read()) == (b"con", 3, b"tent")
    fetch([(url, tmp_path / "a.csv")])
    assert (tmp_path / "a.csv").read_bytes() == b"content"
    assert (server / "missing").files() == []


def test_the_stamp_of_a_file_on_a_web_server_changes_with_its_time(web_folder):
    folder, server = web_folder
    stamps = []
    for time in (1_000_000_000, 1_000_000_000, 1_000_000_001):
        (folder / "a.csv").write_bytes(b"content")
        os.utime(folder / "a.csv", (time, time))
        (listed,) = (server / "a.csv").files()
        stamps.append(listed.stamp)
    assert stamps[0] == stamps[1] != stamps[2]


def test_a_file_of_unknown_size_is_refused(web_folder):
    folder, server = web_folder
    (folder / "photos").mkdir()
    (folder / "photos" / "a.png").write_bytes(b"content")
    # A page of links lists no sizes.
    with pytest.raises(UserError, match=r"/photos/a\.png cannot be used: its server does not say how large it is"):
        (server / "photos").below()


def test_only_one_process_creates_an_object(bucket):
    (bucket / "claim").create()
    with pytest.raises(FileExistsError):
        (bucket / "claim").create()


def test_a_missing_object_is_named(bucket, tmp_path):
    with pytest.raises(UserError, match=f"{bucket}/missing cannot be used: there is no such bucket or object"):
        fetch([(bucket / "missing", tmp_path / "file")])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("denied"), r"with the credentials of this machine: denied\. Set those of the store"),
        (type("NoCredentialsError", (Exception,), {})("none"), r"with the credentials of this machine: none\."),
        (
            type("HttpError", (Exception,), {"code": 401})("bad token"),
            "with the credentials of this machine: bad token",
        ),
        (OSError("Forbidden: b\nnot yours"), "with the credentials of this machine: Forbidden: b not yours"),
        (type("RefreshError", (Exception,), {})("expired"), "with the credentials of this machine: expired"),
        (TimeoutError("no answer"), r"cannot be used: no answer\. Check the network"),
        (ConnectionError(), r"cannot be used: ConnectionError\. Check the network"),
    ],
)
def test_errors_of_a_store_say_what_to_do(bucket, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(module._store("memory"), "exists", fail)
    with pytest.raises(UserError, match=message):
        bucket.exists()


@pytest.mark.parametrize(
    ("place", "error", "named"),
    [
        ("s3://bucket", PermissionError("denied"), r"\(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\), or ask"),
        ("gs://bucket", PermissionError("denied"), r"\(GOOGLE_APPLICATION_CREDENTIALS\), or ask"),
        ("s3://bucket", TimeoutError("no answer"), r"\(AWS_ENDPOINT_URL\)\."),
        ("gs://bucket", TimeoutError("no answer"), r"\(STORAGE_EMULATOR_HOST\)\."),
    ],
)
def test_errors_name_the_variables_of_the_store(monkeypatch, place, error, named):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(module, "_store", lambda _: SimpleNamespace(exists=fail, _strip_protocol=str))
    with pytest.raises(UserError, match=named):
        Url(place).exists()


def test_an_error_while_an_object_is_read_says_what_to_do(bucket, monkeypatch):
    (bucket / "a").write_bytes(b"content")
    with (bucket / "a").open() as file:
        monkeypatch.setattr(file.raw._file, "read", lambda size: 1 / 0)
        with pytest.raises(UserError, match="Check the network"):
            file.read()


@pytest.mark.parametrize(
    ("place", "needed"),
    [
        ("s3://bucket", r'pip install "highway-keras\[s3\]"\.$'),
        ("gs://bucket", r'pip install "highway-keras\[gs\]"\.$'),
        ("abfs://bucket", r"fsspec.*\. Install it with pip\.$"),
    ],
)
def test_missing_packages_are_named(monkeypatch, place, needed):
    module._store.cache_clear()
    # That of a store may have been imported already.
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UserError, match=needed):
        Url(place).exists()


def test_an_unknown_protocol_is_refused():
    with pytest.raises(UserError, match="nonsense:// has a protocol that fsspec does not open"):
        Url("nonsense://bucket/x").exists()


class Words(Frozen):
    """Arguments with a place that may be a URL, and one that may not."""

    run: Location | None = None
    """A place."""
    to: "module.Path | None" = None
    """A path."""


def test_an_argument_may_be_a_path_or_a_url():
    assert parse(Words, ["--run", "s3://bucket/x"], "test").run == Url("s3://bucket/x")
    assert parse(Words, ["--run", "runs/x"], "test").run == module.Path("runs/x")
    assert parse(Words, [], "test").run is None
    for place in (Url("s3://bucket/x"), module.Path("runs/x")):
        assert Words.model_validate_json(Words(run=place).model_dump_json()).run == place
    with pytest.raises(ValidationError):
        Words(run=3)


def test_a_url_in_place_of_a_path_is_refused():
    with pytest.raises(UserError, match=r"--to takes no URL\. Received: s3://bucket/x"):
        parse(Words, ["--to", "s3://bucket/x"], "test")

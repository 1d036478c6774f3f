"""The user's own data in a bucket, on fsspec's file system in memory."""

import io
import itertools
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipelines.core.config import Config, ModelConfig
from pipelines.core.errors import UserError
from pipelines.core.files import user_cache
from pipelines.core.url import Url
from pipelines.data import roots, sources
from pipelines.data.own import by_url
from pipelines.data.own.formats import find_items
from pipelines.data.own.prepare import resolved, restore
from pipelines.verbs.cli import main
from tests import houses, shapes

numbers = itertools.count()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def bucket():
    return Url(f"memory://data-{next(numbers)}")


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def config(data, **fields):
    return Config(recipe="toy", model=ModelConfig(preset="mnist_dense_50"), data=str(data), image_size=(8,), **fields)


def upload(path, url):
    """Writes a file or a folder to a bucket, and returns its URL."""
    for file in [path] if path.is_file() else filter(Path.is_file, path.rglob("*")):
        (url / file.relative_to(path.parent).as_posix()).write_bytes(file.read_bytes())
    return url / path.name


def folder(path):
    return shapes.write(path / "shapes", 4)


def table_of_paths(path):
    """A table next to a folder of images, one of which does not exist."""
    shapes.write(path / "images" / "all", 4)
    (path / "images" / "all" / "unused.txt").write_text("")
    rows = [f"images/all/{label}/{seed:03}.png,{label}" for label in shapes.CLASSES for seed in range(4)]
    # As on Windows.
    rows[0] = rows[0].replace("/", "\\")
    (path / "labels.csv").write_text("\n".join(["path,label", *rows, "images/all/gone.png,circle"]) + "\n")
    return path / "labels.csv"


def test_only_the_folder_of_the_images_is_listed_for_paths_of_windows(bucket, tmp_path, console, monkeypatch):
    shapes.write(tmp_path / "photos" / "all", 2)
    rows = [f"photos\\all\\{label}\\{seed:03}.png,{label}" for label in shapes.CLASSES for seed in range(2)]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    url = upload(tmp_path / "labels.csv", bucket)
    upload(tmp_path / "photos", bucket)
    listed, files = [], Url.files
    monkeypatch.setattr(Url, "files", lambda self: listed.append(self) or files(self))
    with by_url.local(str(url), console) as path:
        assert len(find_items(Path(path))) == len(rows)
    assert listed == [url, bucket / "photos" / "all"]


def arrays(path):
    labels = np.repeat(np.arange(2), 6)
    np.savez(path / "arrays.npz", x=np.random.default_rng(0).integers(0, 256, (12, 8, 8), np.uint8), y=labels)
    return path / "arrays.npz"


def tars(path):
    (path / "tars").mkdir()
    with tarfile.open(path / "tars" / "0.tar", "w") as archive:
        for number, label in enumerate(shapes.CLASSES * 2):
            for suffix, content in (("png", shapes.encoded(label, number)), ("cls", label.encode())):
                member = tarfile.TarInfo(f"{number}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path / "tars"


@pytest.mark.parametrize("made", [folder, table_of_paths, arrays, tars])
def test_images_in_a_bucket_are_those_on_a_disk(bucket, tmp_path, console, capsys, made):
    skip = made is table_of_paths
    path = made(tmp_path)
    expected = Path(resolved(config(path, skip_damaged=skip), None, console).data)
    url = upload(path, bucket)
    if made is table_of_paths:
        upload(tmp_path / "images", bucket)
    shutil.rmtree(user_cache())
    found = resolved(config(url, skip_damaged=skip), None, Console()).data
    # The digest of the content is the same.
    assert found == f"{url}#{expected.parents[1].name}"
    assert sources.open_builder(found, None).data_dir == str(expected)
    shown = capsys.readouterr().out
    assert f"{url}: " in shown
    assert str(user_cache()) not in shown
    assert not list(user_cache().rglob("unused.txt"))


def test_a_run_finds_its_table_on_a_machine_that_lacks_it(bucket, tmp_path, console):
    url = upload(houses.write(tmp_path / "houses.csv"), bucket)
    table = config(url).model_copy(update={"image_size": (32,), "target": "price"})
    named = resolved(table, None, console)
    counts = sources.describe(named.data).counts
    # What is prepared is not looked at again.
    (bucket / "houses.csv").unlink()
    assert resolved(named, None, console) == named
    shutil.rmtree(user_cache())
    with pytest.raises(UserError, match=f"{named.data} is not prepared on this machine.* data prepare {url}$"):
        sources.describe(named.data)
    with pytest.raises(UserError, match=f"there is nothing at {url}"):
        restore(named, console)
    upload(tmp_path / "houses.csv", bucket)
    restore(named, console)
    assert sources.describe(named.data).counts == counts
    upload(houses.write(tmp_path / "houses.csv", seed=1), bucket)
    assert resolved(table, None, console).data != named.data
    shutil.rmtree(user_cache())
    with pytest.raises(
        UserError, match=f"{url} has changed, or is prepared .*: its data were {named.data}, and are {url}#"
    ):
        restore(named, console)


@pytest.mark.parametrize("path", ["../a.png", "/a.png", "s3://other/a.png"])
def test_a_table_refers_to_images_below_its_folder_only(bucket, console, path):
    (bucket / "x" / "labels.csv").write_bytes(f"path,label\nb/../../a.png,1\n{path},2\n".encode())
    with pytest.raises(UserError, match=f"{bucket}/x/labels.csv refers to .* Expected paths of images relative to"):
        resolved(config(bucket / "x" / "labels.csv"), None, console)


def test_what_is_wrong_with_data_is_said_of_their_url(bucket, console):
    (bucket / "photos" / "a" / "1.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match=f"none of the 1 images of {bucket}/photos can be read"):
        resolved(config(bucket / "photos"), None, console)
    with pytest.raises(UserError, match=f"{bucket}/photos/a/1.png is in no folder for its class"):
        resolved(config(bucket / "photos" / "a"), None, console)


def test_a_table_is_shown_by_url(bucket, tmp_path, capsys):
    url = upload(houses.write(tmp_path / "houses.csv"), bucket)
    assert main(["data", "show", str(url), "--target", "price"]) == 0
    assert "target: price\ntask: regression" in capsys.readouterr().out
    assert main(["data", "show", str(url), "--target", "prize"]) == 2
    assert f"error: {url} has no column 'prize'. Did you mean 'price'?" in capsys.readouterr().err


def test_the_name_of_prepared_data_is_split(tmp_path):
    folder = roots.own_folder("0123456789abcdef0123", "photos")
    name = roots.pinned(Url("s3://bucket/photos"), folder)
    assert name == "s3://bucket/photos#0123456789abcdef"
    assert roots.unpinned(name) == ("s3://bucket/photos", folder)
    assert roots.unpinned("s3://bucket/photos#1/") == ("s3://bucket/photos#1", None)
    assert roots.unpinned("photos#0123456789abcdef") == ("photos#0123456789abcdef", None)
    roots.refuse_unknown(name)
    roots.refuse_missing("s3://bucket/a.csv")

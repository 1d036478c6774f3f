"""Tar files of WebDataset: hidden members, compression, and archives that go on."""

import tarfile

import pytest

from pipelines.core.errors import UserError
from pipelines.data.own.formats import find_items
from tests.unit.pipelines.data.own.small_tars import a_tar


def test_files_that_macos_adds_to_archives_are_no_images(tmp_path):
    added = {"._0.png": b"", "./a/._0.png": b"", "__MACOSX/._0.png": b"", "._0.cls": b"b"}
    a_tar(tmp_path / "train.tar", **{"./0.png": b"", "./0.cls": b"a"}, **added)
    (tmp_path / "._train.tar").write_bytes(b"no archive")
    assert [(item.name, item.label) for item in find_items(tmp_path)] == [("train.tar:./0.png", "a")]


def test_members_may_lie_above_the_folder_of_the_archive(tmp_path):
    found = find_items(a_tar(tmp_path / "a.tar", **{"../a/0.png": b"", "../a/0.cls": b"a", "../a/.1.png": b""}))
    assert [(item.name, item.label) for item in found] == [("a.tar:../a/0.png", "a")]


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_compressed_tar_files_are_refused(tmp_path, compression):
    with tarfile.open(tmp_path / "a.tar", f"w:{compression}") as tar:
        tar.add(a_tar(tmp_path / "plain", **{"0.png": b"", "0.cls": b"a"}), "0.png")
    with pytest.raises(UserError, match=r"the tar file .*a\.tar is compressed, .* Decompress it\."):
        find_items(tmp_path / "a.tar")


def test_tar_files_that_cat_has_joined_are_refused(tmp_path):
    one = a_tar(tmp_path / "one.tar", **{"0.png": b"", "0.cls": b"a"}).read_bytes()
    other = a_tar(tmp_path / "other.tar", **{"1.png": b"", "1.cls": b"a"}).read_bytes()
    (tmp_path / "both.tar").write_bytes(one + other)
    with pytest.raises(UserError, match=r"both\.tar goes on after the end of its archive, like tar files joined by"):
        find_items(tmp_path / "both.tar")
    # The last block is filled up with any number of zeros.
    (tmp_path / "one.tar").write_bytes(one + bytes(2**20))
    assert len(find_items(tmp_path / "one.tar")) == 1


def test_an_object_is_no_label(tmp_path):
    path = a_tar(tmp_path / "a.tar", **{"0.png": b"", "0.json": b'{"label": {"a": 1}}'})
    with pytest.raises(UserError, match=r'0\.json in .* has the label {"a": 1}\. Expected a text, a number, or a list'):
        find_items(path)

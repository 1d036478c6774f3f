import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.inference.inputs import Listing, sources
from serving.errors import ImageError


def names(*words):
    return list(Listing(sources([str(word) for word in words], None)).names())


def below(root, *words):
    return [os.path.relpath(name, root) for name in names(*words)]


def test_images_of_a_folder_are_in_the_order_of_their_names(folder):
    expected = sorted(str(path) for path in folder.rglob("*.png"))
    assert names(folder) == expected
    assert [source.count() for source in sources([str(folder)], None)] == [30]


def test_words_keep_their_order_and_may_repeat(folder):
    one = folder / "2" / "02.png"
    assert names(one, folder / "0", one) == [str(one), *names(folder / "0"), str(one)]


def test_a_folder_gives_images_and_nothing_else(tmp_path):
    for name in ("a.JPG", "b.txt", "c.tar", "d", ".hidden.png", "e.jpeg.part", "f.jfif", "g.pbm"):
        (tmp_path / name).touch()
    assert below(tmp_path, tmp_path) == [".hidden.png", "a.JPG", "f.jfif", "g.pbm"]


def test_a_file_given_by_name_is_taken_whatever_its_suffix(tmp_path):
    (tmp_path / "scan").touch()
    assert below(tmp_path, tmp_path / "scan") == ["scan"]


def test_globs(folder, tmp_path, monkeypatch):
    assert below(folder, folder / "*" / "0[0-2].png") == ["0/00.png", "1/01.png", "2/02.png"]
    assert names(folder / "**" / "*.png") == names(folder)
    assert names(folder / "[02]") == names(folder / "0", folder / "2")
    monkeypatch.chdir(tmp_path)
    assert names("images/0/*.png") == names("images/0") == [f"images/0/{n:02}.png" for n in range(0, 30, 3)]


@pytest.mark.parametrize("word", ["", "photos/**.jpg"])
def test_words_that_are_no_glob_are_refused(word):
    with pytest.raises(UserError, match=r"is neither a file nor a folder nor a glob|matches nothing as a glob"):
        sources([word], None)


def test_a_recursive_glob_yields_nothing_twice(folder):
    assert names(folder / "**") == names(folder)


def test_an_existing_name_with_glob_characters_is_taken_literally(tmp_path):
    for name in ("[1].png", "1.png"):
        (tmp_path / name).touch()
    assert below(tmp_path, tmp_path / "[1].png") == ["[1].png"]


def test_cyclic_links_end(folder):
    (folder / "0" / "round").symlink_to(folder, target_is_directory=True)
    (folder / "0" / "self.png").symlink_to(folder / "0" / "self.png")
    (folder / "0" / "nowhere.png").symlink_to(folder / "nothing.png")
    (folder / "0" / "other.png").symlink_to(folder / "1" / "01.png")
    (folder / "0" / "folder.png").symlink_to(folder / "1", target_is_directory=True)
    added = ["nowhere.png", "other.png", "self.png"]
    assert below(folder / "0", folder / "0")[10:] == added
    assert len(names(folder / "**")) == 33
    # A link that matches the glob counts as named, and is followed.
    assert len(names(folder / "**" / "*.png")) == 33 + 10
    assert len(names(folder / "0" / "round" / "1")) == 10


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_listed_stays_in_the_list(folder, monkeypatch):
    scandir = os.scandir

    def closed(path):
        if Path(path).name == "1":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    found = below(folder, folder)
    assert len(found) == 21
    assert found[10] == "1"


@pytest.mark.parametrize("word", ["nothing", "nothing/*.png", "no[thing].png"])
def test_an_invalid_word_is_refused_before_any_image(word, folder):
    with pytest.raises(UserError, match="is not a file or a folder, and matches nothing as a glob"):
        sources([str(folder), word], None)


def test_names_that_are_not_utf8(tmp_path, encoded):
    plain = os.fsencode(tmp_path)
    Path(os.fsdecode(plain + b"/\xe9.png")).write_bytes(encoded(1))
    (tmp_path / "数字.png").write_bytes(encoded(2))
    assert below(tmp_path, tmp_path) == ["数字.png", "\\xe9.png"]
    for name, content in Listing(sources([str(tmp_path)], None)).fetched():
        name.encode()
        assert content.exists()


@given(st.lists(st.sampled_from(["a", "b.png", "c", "d.tif", "ab", "a-b", "e.txt"]), min_size=1, max_size=4), st.data())
def test_skipping_some_leaves_the_others(parts, data):
    with tempfile.TemporaryDirectory() as root:
        for count in range(len(parts)):
            path = Path(root, *parts[:count], f"{count}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        every = names(root)
        assert len(every) == len(set(every)) == len(parts)
        listing, past = Listing(sources([root], None)), data.draw(st.integers(0, len(every)))
        taken = [next(listing.names()) for _ in range(past)]
        rest = [image.name for image in listing.fetched()]
        assert taken + rest == every
        assert listing.counts == [len(every)]


def test_a_source_that_breaks_off_ends_the_images():
    class Broken:
        def __iter__(self):
            yield from sources([__file__], None)[0]
            raise UserError("the cable")

    listing = Listing([*sources([__file__], None), Broken(), *sources([__file__], None)])
    assert len(list(listing.fetched())) == 2
    assert str(listing.failure) == "the cable"
    assert listing.counts == [1]


def test_an_image_that_cannot_be_read_does_not_end_the_listing():
    class Odd:
        def __iter__(self):
            (good,) = sources([__file__], None)[0]

            def bad():
                raise ImageError("a link")

            yield good._replace(fetch=bad)
            yield good

    bad, good = Listing([Odd()]).fetched()
    assert str(bad.content) == "a link"
    assert good.content == Path(__file__)

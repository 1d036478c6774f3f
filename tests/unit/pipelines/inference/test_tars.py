import gzip
import io
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.inference import tars
from pipelines.inference.inputs import Listing, sources

COUNT = 20


@pytest.fixture
def packed(tmp_path, encoded):
    """A function that writes a tar file with twenty images and other members."""

    def make(name="images.tar", mode="w", count=COUNT, **options):
        path = tmp_path / name
        with tarfile.open(path, mode, **options) as archive:
            add(archive, "folder.png", kind=tarfile.DIRTYPE)
            for number in range(count):
                add(archive, f"folder.png/{number:02}.png", encoded(number))
            add(archive, "notes.txt", b"not an image")
            add(archive, "nested.tar", b"not an image either")
        return path

    return make


def add(archive, name, content=b"", kind=tarfile.REGTYPE, target=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, target
    archive.addfile(member, io.BytesIO(content))


def listing(path):
    return Listing(sources([str(path)], None))


@pytest.mark.parametrize(
    ("name", "mode"), [("a.tar", "w"), ("A.TAR", "w"), ("a.tar.gz", "w:gz"), ("a.tbz2", "w:bz2"), ("a.tar.xz", "w:xz")]
)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_images_of_a_tar_file(packed, encoded, name, mode, form):
    path = packed(name, mode, format=form)
    found = list(listing(path).fetched())
    assert [image.name for image in found] == [f"{path}:folder.png/{number:02}.png" for number in range(COUNT)]
    assert [image.content for image in found] == [encoded(number) for number in range(COUNT)]
    assert [source.count() for source in sources([str(path)], None)] == [COUNT]


def test_the_number_of_images_is_estimated_from_the_first(packed, monkeypatch):
    monkeypatch.setattr(tars, "SAMPLE", 50)
    monkeypatch.setattr(tars, "BUFFER", 512)
    assert tars.Tar(str(packed(count=500))).count() == pytest.approx(500, rel=0.05)


def test_skipped_images_are_not_read(packed, monkeypatch):
    path = packed()
    read, taken = tars.Tar._content, []
    monkeypatch.setattr(tars.Tar, "_content", lambda *given: taken.append(given[-1]) or read(*given))
    found = listing(path)
    past = [next(found.names()) for _ in range(COUNT - 2)]
    rest = [image.name for image in found.fetched()]
    assert taken == rest
    assert len(past + rest) == COUNT


def test_long_and_odd_names(tmp_path):
    path, name = tmp_path / "a.tar", "ü" * 120 + ".png"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, name, b"1")
    assert list(listing(path).names()) == [f"{path}:{name}"]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        add(archive, "é.png", b"1")
        add(archive, "é.png", b"2")
    assert [one.name for one in listing(path).fetched()] == [f"{path}:\\xe9.png"] * 2


names = st.text("ab/é", min_size=1, max_size=160).filter(lambda name: not name.endswith("/") and "//" not in name)


@given(
    st.lists(st.tuples(names, st.integers(0, 3000), st.integers(0, 2**34)), max_size=8),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_headers_are_read_as_tarfile_reads_them(tmp_path, members, form):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=form) as archive:
        for number, (name, size, time) in enumerate(members):
            member = tarfile.TarInfo(f"{name}{number}.png")
            member.size, member.mtime = size, time
            archive.addfile(member, io.BytesIO(bytes([number]) * size))
    with tarfile.open(path) as archive:
        expected = [(f"{path}:{member.name}", archive.extractfile(member).read()) for member in archive]
    assert [(one.name, one.content) for one in listing(path).fetched()] == expected


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_is_reported(tmp_path, encoded, kind):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "a.png", encoded(1))
        add(archive, "b.png", kind=kind, target="a.png")
        add(archive, "c.png", encoded(1))
    _, link, last = listing(path).fetched()
    assert "b.png is not a regular file" in str(link.content)
    assert last.content == encoded(1)


def test_a_member_too_large_for_memory_is_reported(packed, monkeypatch):
    monkeypatch.setattr(tars, "BYTES", 10)
    found = list(listing(packed()).fetched())
    assert len(found) == COUNT
    assert "more than the limit of 10" in str(found[0].content)


def test_other_files_are_refused_at_once(tmp_path, folder):
    path = tmp_path / "a.tar"
    path.write_bytes(b"no tar file" * 100)
    with pytest.raises(UserError, match=r"a\.tar cannot be read as a tar file"):
        sources([str(folder), str(path)], None)
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"a\.tar cannot be read as a tar file"):
        sources([str(path)], None)


@pytest.mark.parametrize("place", ["header", "content", "between", "end"])
def test_an_incomplete_tar_file_is_reported_after_its_last_whole_image(packed, place):
    path = packed()
    content = path.read_bytes()
    with tarfile.open(path) as archive:
        member = archive.getmembers()[11]
        last = archive.getmembers()[-1]
    cut = {
        "header": member.offset + 100,
        "content": member.offset_data + 10,
        "between": member.offset,
        "end": last.offset_data + 512,
    }
    path.write_bytes(content[: cut[place]])
    found = listing(path)
    assert len(list(found.fetched())) == (COUNT if place == "end" else 10)
    assert f"{path} cannot be read as a tar file" in str(found.failure)


def test_an_incomplete_end_is_reported_when_images_are_skipped_too(packed):
    path = packed()
    path.write_bytes(path.read_bytes()[:5000])
    found = listing(path)
    list(found.names())
    assert found.failure


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_tar_files_that_cat_has_joined_are_reported_after_the_first(packed, pack):
    path = packed()
    path.write_bytes(pack(path.read_bytes() * 2))
    found = listing(path)
    assert len(list(found.fetched())) == COUNT
    assert str(found.failure).endswith(" it goes on after the end of its archive, like tar files joined by cat.")


def test_a_damaged_header_is_not_taken_for_the_end(packed):
    path = packed()
    with tarfile.open(path) as archive:
        offset = archive.getmembers()[11].offset
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 300)
    found = listing(path)
    assert len(list(found.fetched())) == 10
    assert f"at byte {offset:,}" in str(found.failure)


@pytest.mark.parametrize(("name", "mode"), [("a.tar.gz", "w:gz"), ("a.tar.bz2", "w:bz2"), ("a.tar.xz", "w:xz")])
@pytest.mark.parametrize("flip", [False, True])
def test_damaged_compression_is_reported(packed, name, mode, flip):
    path = packed(name, mode)
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    if flip:
        content[half : half + 64] = bytes(byte ^ 0x5A for byte in content[half : half + 64])
        path.write_bytes(content)
    else:
        path.write_bytes(content[:half])
    try:
        found = listing(path)
    except UserError as error:
        # The file had a single block.
        failure = error
    else:
        list(found.fetched())
        failure = found.failure
    assert f"{path} cannot be read as a tar file" in str(failure)

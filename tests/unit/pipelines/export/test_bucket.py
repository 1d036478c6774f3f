"""Versions exported to a bucket, on fsspec's file system in memory; the export itself writes two small files."""

import itertools

import pytest

from pipelines.core.errors import UserError
from pipelines.core.url import Url
from pipelines.export.bucket import exported_to
from pipelines.export.version import new_version
from serving import manifest, repository
from tests.dying_store import dying

numbers = itertools.count()


@pytest.fixture
def model():
    """The place of a model's versions in a new bucket."""
    return Url(f"memory://exported-{next(numbers)}/models/digits")


def export(model, look=lambda folder: None):
    """Exports a version as `highway export` does, and returns its number; `look` gets the folder before."""
    with exported_to(model) as to:
        look(to.folder)
        with new_version(to.folder) as (number, folder):
            (folder / "variables").mkdir()
            (folder / "variables" / "data").write_text("weights")
            (folder / "model.onnx").write_text("graph")
            (folder / manifest.NAME).write_text(f"manifest {number}")
        to.publish()
    return number


def names(model):
    return sorted(str(one.url).removeprefix(f"{model}/") for one in model.files())


def versions(model):
    """The numbers of the versions, which have a manifest."""
    return [int(name.partition("/")[0]) for name in names(model) if name.endswith(f"/{manifest.NAME}")]


def test_versions_count_up_from_one(model):
    assert [export(model), export(model)] == [1, 2]
    files = ["manifest.json", "model.onnx", "variables/data"]
    assert names(model) == [f"{number}/{name}" for number in (1, 2) for name in files]
    assert (model / "2" / manifest.NAME).read_text() == "manifest 2"


def test_numbers_that_are_too_large_are_ignored(model):
    (model / "20261128134127123456" / manifest.NAME).write_bytes(b"of another program")
    assert [export(model), export(model)] == [1, 2]


def test_a_path_stays_what_it_is(tmp_path):
    assert export(tmp_path) == 1
    with exported_to(None) as to:
        assert to.folder is None


def test_a_whole_bucket_is_no_model():
    with pytest.raises(UserError, match=r"memory://bucket is a whole bucket. Name a folder or an object in it"):
        exported_to(Url("memory://bucket")).__enter__()


def test_the_manifest_is_written_last_and_an_interrupted_upload_is_no_version(model):
    export(model)
    for operations in itertools.count():
        before = versions(model)
        with dying(operations) as failures:
            try:
                number = export(model)
            except UserError:
                number = None
        if not failures:
            break
        if number is None:
            assert versions(model) == before
    # The claim, two files and the manifest; and one number for each attempt but the first, which could claim none.
    assert operations == 5
    assert versions(model)[-1] == number
    assert all({f"{one}/model.onnx", f"{one}/variables/data"} <= {*names(model)} for one in versions(model))


def test_two_exports_at_the_same_time_get_different_numbers(model):
    with exported_to(model) as first:
        assert export(model) == 2
        with new_version(first.folder) as (number, folder):
            (folder / manifest.NAME).write_text("first")
        first.publish()
    assert number == 1
    assert versions(model) == [1, 2]
    assert (model / "1" / manifest.NAME).read_text() == "first"


@pytest.mark.parametrize("published", [True, False])
def test_a_number_that_another_process_claims_first_is_not_used(model, monkeypatch, published):
    create = Url.create

    def late(claim, content=b""):
        monkeypatch.setattr(Url, "create", create)
        if published:
            export(model)
        else:
            create(claim)
        create(claim, content)

    monkeypatch.setattr(Url, "create", late)
    assert export(model) == 2
    assert versions(model) == ([1, 2] if published else [2])


def test_a_version_is_never_overwritten(model):
    def other(folder):
        (model / "1" / manifest.NAME).write_bytes(b"of another program")

    with pytest.raises(UserError, match=f"{model}/1 was created meanwhile by another program"):
        export(model, other)
    assert (model / "1" / manifest.NAME).read_text() == "of another program"


def test_the_export_sees_versions_and_the_newest_manifest(model):
    export(model)
    export(model)
    # Left behind by an export that was killed.
    (model / "7" / "model.onnx").write_bytes(b"half")
    (model / ".export-8").write_bytes(b"")

    def look(folder):
        assert folder.name == "digits"
        assert repository.versions(folder) == [1, 2]
        assert (folder / "2" / manifest.NAME).read_text() == "manifest 2"

    assert export(model, look) == 9
    assert versions(model) == [1, 2, 9]


def test_the_export_sees_that_a_folder_is_one_of_models(model):
    export(model)
    with exported_to(model.parent) as to:
        assert [folder.name for folder in repository.models(to.folder)] == ["digits"]
        assert not repository.versions(to.folder)
    with pytest.raises(UserError, match=f"{model}/1 is one version of a model"):
        export(model / "1")

"""One process at a time keeps the copy of a bucket up to date, and the catalog reports problems with the bucket."""

import pytest

from serving import bucket
from serving.engine import mirror as mirrors
from serving.engine.catalog import Catalog
from serving.engine.mirror import Mirror
from serving.engine.processes import EndedError
from serving.errors import RefusedError, UnavailableError, UnknownModelError
from tests.endpoint import eventually

from ..bucket_versions import make_version
from .catalogs import opened, states


class FakeMirror:
    """A mirror whose report the test sets."""

    def __init__(self):
        self.now = bucket.Report(complete=False)

    def report(self):
        return self.now


@pytest.fixture
def mirror():
    return FakeMirror()


@pytest.fixture
def catalog(root, mirror):
    return Catalog(root, opened, mirror=mirror)


def test_models_are_loading_until_the_bucket_has_been_checked(catalog, mirror):
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert catalog.loading
    with pytest.raises(UnavailableError, match="still being loaded"):
        catalog.find("cats")
    mirror.now = bucket.Report()
    catalog.refresh()
    assert not catalog.loading
    with pytest.raises(UnknownModelError):
        catalog.find("cats")


def test_a_problem_with_the_bucket_is_one_of_the_repository_and_logged_once(catalog, mirror, caplog):
    caplog.set_level("INFO")
    mirror.now = bucket.Report(problem="s3://bucket cannot be reached")
    for _ in range(3):
        catalog.refresh()
    assert catalog.problem == "s3://bucket cannot be reached. Loaded versions stay in service."
    assert catalog.find("digits") == "digits 2"
    mirror.now = bucket.Report()
    catalog.refresh()
    assert catalog.problem == ""
    messages = [record.getMessage() for record in caplog.records if "repository" in record.getMessage()]
    assert messages == ["repository unavailable", "repository available again"]


def test_versions_that_were_not_copied_are_refused_and_logged_once(root, catalog, mirror, caplog):
    mirror.now = bucket.Report(refused={"digits": {2: "new files are damaged", 3: "damaged"}, "cats": {1: "truncated"}})
    for _ in range(3):
        catalog.refresh()
    assert states(catalog) == {3: "failed", 2: "available"}
    assert {one.version: one.reason for one in catalog.statuses("digits")} == {2: "new files are damaged", 3: "damaged"}
    with pytest.raises(RefusedError, match="Version 3 was refused: damaged"):
        catalog.find("digits", 3)
    with pytest.raises(RefusedError, match="Version 1 was refused: truncated"):
        catalog.find("cats")
    assert catalog.names() == ["digits"]
    logged = [(record.model, record.version) for record in caplog.records if record.getMessage() == "version refused"]
    assert logged == [("cats", 1), ("digits", 2), ("digits", 3)]
    (root / "digits" / "3").mkdir()
    mirror.now = bucket.Report()
    catalog.refresh()
    assert states(catalog) == {3: "available"}
    assert list(catalog.models()) == ["digits"]


def test_one_process_checks_the_bucket_and_another_takes_over(tmp_path, content, monkeypatch):
    monkeypatch.setattr(mirrors, "INTERVAL", 0.02)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = (tmp_path / "models").as_uri()
    add(tmp_path / "models", content, 1)
    folder = bucket.copy_folder(url)
    first, second = Mirror(url, folder), Mirror(url, folder)
    first.start()
    eventually((folder / "tiny" / "1").is_dir)
    calls, call = [], second._children.call
    monkeypatch.setattr(second._children, "call", lambda *words: calls.append(words) or call(*words))
    second.start()
    eventually(lambda: second.report().complete)
    # The system kills the process that reads the bucket: another is started.
    with monkeypatch.context() as patched:
        patched.setattr(first._children, "call", killed)
        eventually(lambda: "was killed" in second.report().problem)
    eventually(lambda: second.report().problem == "")
    assert calls == []
    first.close()
    add(tmp_path / "models", content, 2)
    eventually((folder / "tiny" / "2").is_dir)
    second.close()


def killed(*_):
    raise EndedError


def add(root, content, number):
    for path, one in make_version(content, number).items():
        file = root / "tiny" / str(number) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(one)

"""The catalog over folders that stand for versions, with a fake function that opens them."""

import os
import shutil
import threading
from itertools import pairwise

import pytest

from serving import release
from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog
from serving.engine.status import error_reason
from serving.errors import ModelError, RefusedError, UnavailableError, UnknownModelError


@pytest.fixture
def root(tmp_path):
    for version in (1, 2):
        (tmp_path / "digits" / str(version)).mkdir(parents=True)
    return tmp_path


def opened(folder):
    if (folder / "bad").exists():
        raise ModelError(f"{folder} is damaged")
    return f"{folder.parent.name} {folder.name}"


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still until it is set."""
    time = [1000.0]
    monkeypatch.setattr(catalogs, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def catalog(root):
    made = Catalog(root, opened)
    made.refresh()
    return made


def pin(root, versions, **labels):
    wanted = release.Release(versions=versions, labels=labels)
    (root / "digits" / release.NAME).write_text(wanted.model_dump_json())


def states(catalog, name="digits"):
    return {status.version: status.state for status in catalog.models()[name].statuses()}


def test_the_newest_version_is_served(catalog):
    assert catalog.find("digits") == "digits 2"
    assert catalog.names() == ["digits"]
    assert states(catalog) == {2: "available"}


def test_a_new_version_takes_over_and_models_come_and_go(root, catalog, clock):
    (root / "digits" / "10").mkdir()
    (root / "cats" / "1").mkdir(parents=True)
    catalog.refresh()
    assert catalog.find("digits") == "digits 10"
    assert catalog.names() == ["cats", "digits"]
    shutil.rmtree(root / "cats")
    shutil.rmtree(root / "digits" / "10")
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    # Nothing replaces it, so its folder may only have been moved for a while.
    assert catalog.find("cats") == "cats 1"
    assert "has no versions any more" in catalog.models()["cats"].problem
    clock[0] += catalogs.PATIENCE
    catalog.refresh()
    with pytest.raises(UnknownModelError, match=r"no model 'cats'. Served are: digits"):
        catalog.find("cats")


def test_a_bad_version_is_reported_and_the_previous_one_stays_in_service(root, catalog):
    bad = root / "digits" / "3"
    bad.mkdir()
    (bad / "bad").touch()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {3: "failed", 2: "available"}
    (failed,) = (status for status in catalog.models()["digits"].statuses() if status.state == "failed")
    assert "3 is damaged" in failed.reason


def test_a_bad_version_is_not_tried_again_until_it_changes(root, catalog):
    tried = []
    catalog._open = lambda folder: (tried.append(folder.name), opened(folder))[1]
    bad = root / "digits" / "3"
    bad.mkdir()
    (bad / "bad").touch()
    catalog.refresh()
    catalog.refresh()
    assert tried == ["3"]
    (bad / "bad").unlink()
    catalog.refresh()
    assert tried == ["3", "3"]
    assert catalog.find("digits") == "digits 3"
    assert states(catalog) == {3: "available"}


def test_an_unavailable_version_is_tried_at_every_check_and_logged_once(root, catalog, caplog):
    away, tried = True, []

    def later(folder):
        tried.append(folder.name)
        if away:
            raise UnavailableError(f"the server has not {folder.name}")
        return opened(folder)

    catalog._open = later
    (root / "digits" / "3").mkdir()
    catalog.refresh()
    catalog.refresh()
    assert tried == ["3", "3"]
    assert [record.getMessage() for record in caplog.records] == ["version refused"]
    assert catalog.find("digits") == "digits 2"
    with pytest.raises(UnavailableError, match="the server has not 3"):
        catalog.find("digits", 3)
    away = False
    catalog.refresh()
    assert catalog.find("digits") == "digits 3"
    assert states(catalog) == {3: "available"}


def test_a_model_whose_versions_are_all_unavailable(root):
    def away(folder):
        raise UnavailableError("no server")

    made = Catalog(root, away)
    made.refresh()
    with pytest.raises(UnavailableError, match="no server"):
        made.find("digits")
    with pytest.raises(UnknownModelError):
        made.find("digits", 9)


def test_nothing_is_loaded_twice(root, catalog):
    catalog._open = lambda folder: pytest.fail(f"{folder} is loaded already")
    catalog.refresh()


def test_the_release_decides_versions_and_labels(root, catalog):
    pin(root, (1, 2), stable=1, canary=2)
    catalog.refresh()
    assert catalog.find("digits", label="stable") == "digits 1"
    assert catalog.find("digits", label="canary") == catalog.find("digits") == "digits 2"
    assert catalog.find("digits", version=1) == "digits 1"
    (root / "digits" / "3").mkdir()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"


def test_rolling_back_and_forward(root, catalog):
    pin(root, (1,))
    catalog.refresh()
    assert catalog.find("digits") == "digits 1"
    with pytest.raises(UnknownModelError, match=r"no version 2 is served. Served are: 1"):
        catalog.find("digits", version=2)
    (root / "digits" / release.NAME).unlink()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"


def test_a_release_of_missing_versions_keeps_the_served_ones(root, catalog):
    pin(root, (7,))
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {7: "failed", 2: "available"}


def test_a_damaged_release_file_changes_nothing(root, catalog):
    pin(root, (1,), stable=1)
    catalog.refresh()
    (root / "digits" / release.NAME).write_text("{")
    catalog.refresh()
    assert catalog.find("digits", label="stable") == "digits 1"


def test_unknown_labels_are_errors(root, catalog):
    with pytest.raises(UnknownModelError, match=r"has no label 'stable'. It has: none"):
        catalog.find("digits", label="stable")


def test_a_model_whose_only_version_is_bad_serves_none(root):
    (root / "cats" / "1").mkdir(parents=True)
    (root / "cats" / "1" / "bad").touch()
    made = Catalog(root, opened)
    made.refresh()
    assert made.names() == ["digits"]
    for version in (None, 1):
        with pytest.raises(RefusedError, match=r"no version.* is served. Served are: none. Version 1 was refused: "):
            made.find("cats", version)
    with pytest.raises(UnknownModelError, match="no version 2 is served"):
        made.find("cats", 2)
    assert [one.state for one in made.statuses("cats")] == ["failed"]
    with pytest.raises(UnknownModelError, match="no version 2 is served"):
        made.statuses("cats", 2)


def test_a_repository_that_does_not_exist_yet(tmp_path):
    made = Catalog(tmp_path / "later", opened)
    made.refresh()
    assert made.names() == []
    (tmp_path / "later" / "digits" / "1").mkdir(parents=True)
    made.refresh()
    assert made.names() == ["digits"]


def test_the_catalog_watches_until_it_is_closed(root, catalog):
    seen = threading.Event()
    catalog._open = lambda folder: (seen.set(), opened(folder))[1]
    thread = catalog.watch(0.01)
    (root / "digits" / "3").mkdir()
    assert seen.wait(10)
    catalog.close()
    thread.join(10)
    assert not thread.is_alive()


def test_some_version_always_answers(root, catalog):
    """Queries without a pause while versions come and go."""
    wrong, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                catalog.find("digits")
            except UnknownModelError as error:
                wrong.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for version in range(3, 60):
        (root / "digits" / str(version)).mkdir()
        catalog.refresh()
        shutil.rmtree(root / "digits" / str(version - 1))
        catalog.refresh()
    stop.set()
    asking.join()
    assert not wrong


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RecursionError("too deep"), RuntimeError("ONNX"), KeyError("x"), OSError(5, "I/O error")],
)
def test_an_error_affects_only_its_own_version(root, clock, caplog, error):
    (root / "zebras" / "1").mkdir(parents=True)
    broken = True

    def open_version(folder):
        if broken and folder.parent.name == "digits" and folder.name == "2":
            raise error
        return opened(folder)

    made = Catalog(root, open_version)
    for _ in range(5):
        made.refresh()
    assert (made.find("zebras"), made.find("digits")) == ("zebras 1", "digits 1")
    assert type(error).__name__ in made.models()["digits"].failed[2].reason
    (logged,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert (logged.getMessage(), logged.exc_info[1]) == ("version refused", error)
    # The files may not be to blame, so it is tried again after a while.
    broken = False
    made.refresh()
    assert made.find("digits") == "digits 1"
    clock[0] += 1
    made.refresh()
    assert made.find("digits") == "digits 2"


def test_a_reason_can_be_sent_whatever_a_file_contains():
    assert error_reason(RuntimeError("ONNX: \ud800")).encode().endswith(rb"ONNX: \ud800")


def test_failing_versions_are_retried_ever_more_rarely(root, clock):
    tried = []

    def fail(folder):
        tried.append(clock[0])
        raise MemoryError

    made = Catalog(root / "digits", fail)
    (root / "digits" / "only" / "1").mkdir(parents=True)
    for _ in range(400):
        made.refresh()
        clock[0] += 1
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]


def test_models_stay_in_service_when_the_repository_vanishes(root, catalog, clock, caplog):
    away = root.rename(root.with_name("away"))
    for _ in range(3):
        clock[0] += 1000
        catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert "cannot be read: No such file" in catalog.problem
    # An empty folder is left where the volume was mounted.
    root.mkdir()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert "has been replaced by an empty folder" in catalog.problem
    assert [record.getMessage() for record in caplog.records] == ["repository unavailable"] * 2
    root.rmdir()
    (away / "digits" / "3").mkdir()
    away.rename(root)
    catalog.refresh()
    assert (catalog.find("digits"), catalog.problem) == ("digits 3", "")


def test_a_model_stays_in_service_when_an_empty_folder_replaces_its_own(root, catalog, clock):
    away = (root / "digits").rename(root.with_name("away"))
    # The old folder was moved, not deleted: otherwise the new one could reuse its inode.
    (root / "digits").mkdir()
    for _ in range(2):
        clock[0] += 1000
        catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert [status.reason for status in catalog.models()["digits"].statuses()] == [catalog.models()["digits"].problem]
    (root / "digits").rmdir()
    away.rename(root / "digits")
    catalog.refresh()
    assert (catalog.find("digits"), catalog.models()["digits"].problem) == ("digits 2", "")


def test_an_unreadable_folder_does_not_affect_others(root, catalog, monkeypatch, caplog):
    listed = catalogs.repository.versions

    def versions(folder):
        if folder.name == "digits":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(catalogs.repository, "versions", versions)
    (root / "zebras" / "1").mkdir(parents=True)
    for _ in range(3):
        catalog.refresh()
    assert catalog.names() == ["digits", "zebras"]
    assert "Permission denied" in catalog.models()["digits"].problem
    assert [record.getMessage() for record in caplog.records] == ["model folder has a problem"]


def test_a_version_exported_again_under_its_number_is_reloaded(root, catalog):
    for version in (1, 2):
        (root / "digits" / str(version) / "manifest.json").write_text("first")
    catalog._open = lambda folder: (folder / "manifest.json").read_text() + opened(folder)[:0]
    catalog.refresh()
    assert catalog.find("digits") == "first"
    shutil.rmtree(root / "digits" / "2")
    shutil.rmtree(root / "digits" / "1")
    catalog.refresh()
    (root / "digits" / "2").mkdir()
    (root / "digits" / "2" / "manifest.json").write_text("the second")
    catalog.refresh()
    assert catalog.find("digits") == "the second"
    # The damage is reported, and the loaded version stays in service.
    (root / "digits" / "2" / "bad").touch()
    (root / "digits" / "2" / "manifest.json").unlink()
    catalog._open = opened
    catalog.refresh()
    assert catalog.find("digits") == "the second"
    (status,) = catalog.models()["digits"].statuses()
    assert (status.state, "is damaged" in status.reason) == ("available", True)


def test_a_damaged_release_is_logged_once(root, catalog, caplog):
    (root / "digits" / release.NAME).write_text("{")
    for _ in range(3):
        catalog.refresh()
    assert len(caplog.records) == 1
    assert "release.json is damaged" in catalog.models()["digits"].problem


def test_folders_with_undecodable_names_are_not_models(root, catalog):
    (root / os.fsdecode(b"\xff") / "1").mkdir(parents=True)
    catalog.refresh()
    assert list(catalog.models()) == ["digits"]


def test_no_model_is_unknown_while_the_catalog_loads(root):
    loading, may = threading.Event(), threading.Event()

    def slow(folder):
        loading.set()
        assert may.wait(10)
        return opened(folder)

    made = Catalog(root, slow)
    thread = made.watch(0.01)
    assert loading.wait(10)
    for name in ("digits", "others"):
        with pytest.raises(UnavailableError, match="still being loaded"):
            made.find(name)
    assert states(made) == {2: "loading"}
    # A check that is waiting ends when the catalog is closed, not when the version is loaded.
    made.close()
    made.refresh()
    may.set()
    thread.join(10)
    assert not thread.is_alive()

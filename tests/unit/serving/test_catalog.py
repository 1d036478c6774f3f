"""The catalog over folders that stand for versions; what opens them is made up here."""

import shutil
import threading

import pytest

from serving import release
from serving.catalog import Catalog
from serving.errors import ModelError, UnavailableError, UnknownModelError


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
def catalog(root):
    made = Catalog(root, opened)
    made.refresh()
    return made


def pin(root, versions, **labels):
    wanted = release.Release(versions=versions, labels=labels)
    (root / "digits" / release.NAME).write_text(wanted.model_dump_json())


def states(catalog, name="digits"):
    return {status.version: status.state for status in catalog.entries()[name].statuses()}


def test_the_newest_version_is_served(catalog):
    assert catalog.find("digits") == "digits 2"
    assert catalog.names() == ["digits"]
    assert states(catalog) == {2: "available"}


def test_a_new_version_takes_over_and_models_come_and_go(root, catalog):
    (root / "digits" / "10").mkdir()
    (root / "cats" / "1").mkdir(parents=True)
    catalog.refresh()
    assert catalog.find("digits") == "digits 10"
    assert catalog.names() == ["cats", "digits"]
    shutil.rmtree(root / "cats")
    shutil.rmtree(root / "digits" / "10")
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    with pytest.raises(UnknownModelError, match=r"no model 'cats'. Served are: digits"):
        catalog.find("cats")


def test_a_bad_version_is_reported_and_the_old_one_serves_on(root, catalog):
    bad = root / "digits" / "3"
    bad.mkdir()
    (bad / "bad").touch()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {3: "failed", 2: "available"}
    (failed,) = (status for status in catalog.entries()["digits"].statuses() if status.state == "failed")
    assert "3 is damaged" in failed.why


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


def test_a_version_that_may_come_later_is_tried_at_every_look_and_told_once(root, catalog, caplog):
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


def test_a_model_none_of_whose_versions_can_be_asked_yet(root):
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


def test_versions_and_labels_as_released(root, catalog):
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


def test_a_release_of_versions_that_are_not_there_keeps_what_is_served(root, catalog):
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


def test_unknown_labels_are_told(root, catalog):
    with pytest.raises(UnknownModelError, match=r"has no label 'stable'. It has: none"):
        catalog.find("digits", label="stable")


def test_a_model_whose_only_version_is_bad_has_none_to_serve(root):
    (root / "cats" / "1").mkdir(parents=True)
    (root / "cats" / "1" / "bad").touch()
    made = Catalog(root, opened)
    made.refresh()
    assert made.names() == ["digits"]
    with pytest.raises(UnknownModelError, match="no version is served"):
        made.find("cats")


def test_a_repository_that_is_not_there_yet(tmp_path):
    made = Catalog(tmp_path / "later", opened)
    made.refresh()
    assert made.names() == []
    (tmp_path / "later" / "digits" / "1").mkdir(parents=True)
    made.refresh()
    assert made.names() == ["digits"]


def test_it_watches_until_it_is_closed(root, catalog):
    seen = threading.Event()
    catalog._open = lambda folder: (seen.set(), opened(folder))[1]
    thread = catalog.watch(0.01)
    (root / "digits" / "3").mkdir()
    assert seen.wait(10)
    catalog.close()
    thread.join(10)
    assert not thread.is_alive()


def test_there_is_always_one_that_answers(root, catalog):
    """Asked without a pause while versions come and go."""
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

"""The versions that a catalog serves."""

import os
import shutil
import threading

import pytest

from serving import release
from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog
from serving.errors import RefusedError, UnavailableError, UnknownModelError

from .catalogs import opened, states


def pin(root, versions, **labels):
    wanted = release.Release(versions=versions, labels=labels)
    (root / "digits" / release.NAME).write_text(wanted.model_dump_json())


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
    assert "no longer has versions" in catalog.models()["cats"].problem
    clock[0] += catalogs.PATIENCE
    catalog.refresh()
    with pytest.raises(UnknownModelError, match=r"no model 'cats'. Served are: digits"):
        catalog.find("cats")


def test_a_model_may_be_dropped_while_others_are_listed(root, catalog):
    (root / "cats" / "1").mkdir(parents=True)
    catalog.refresh()

    class Dropping:
        @property
        def served(self):
            catalog._models.pop("digits", None)
            return {1: "cats 1"}

    catalog._models = {**catalog._models, "cats": Dropping()}
    assert catalog.names() == ["cats", "digits"]


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
    with pytest.raises(UnknownModelError, match=r"version 2 of model .* is not served. Served versions: 1\."):
        catalog.find("digits", version=2)
    (root / "digits" / release.NAME).unlink()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"


def test_a_release_of_missing_versions_keeps_the_served_ones(root, catalog):
    pin(root, (7,))
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {7: "failed", 2: "available"}


def test_a_pinned_version_that_is_removed_is_dropped_after_a_while(root, catalog, clock):
    pin(root, (2,))
    catalog.refresh()
    shutil.rmtree(root / "digits" / "2")
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert "no longer has a version that can be served" in catalog.models()["digits"].problem
    clock[0] += 60.0
    catalog.refresh()
    with pytest.raises(RefusedError):
        catalog.find("digits")


def test_a_damaged_release_file_changes_nothing(root, catalog):
    pin(root, (1,), stable=1)
    catalog.refresh()
    (root / "digits" / release.NAME).write_text("{")
    catalog.refresh()
    assert catalog.find("digits", label="stable") == "digits 1"


def test_unknown_labels_are_errors(root, catalog):
    with pytest.raises(UnknownModelError, match=r"has no label 'stable'. It has: none"):
        catalog.find("digits", label="stable")


def test_a_repository_that_does_not_exist_yet(tmp_path):
    made = Catalog(tmp_path / "later", opened)
    made.refresh()
    assert made.names() == []
    (tmp_path / "later" / "digits" / "1").mkdir(parents=True)
    made.refresh()
    assert made.names() == ["digits"]


def test_the_catalog_polls_until_it_is_closed(root, catalog):
    seen = threading.Event()
    catalog._open = lambda folder: (seen.set(), opened(folder))[1]
    thread = catalog.start_polling(0.01)
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
    thread = made.start_polling(0.01)
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

"""Versions that are still being tried in the background while the others are served."""

import pytest

from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog
from serving.errors import LoadingError, UnavailableError, UnknownModelError

from .catalogs import opened, states


class Trying:
    """Opens versions; those in `trying` are still being tried in the background."""

    def __init__(self, *trying):
        self.trying = set(trying)

    def open(self, folder):
        if f"{folder.parent.name}/{folder.name}" in self.trying:
            raise LoadingError("is still being tried")
        return opened(folder)


def test_a_version_that_is_being_tried_is_loading_and_others_serve(root, clock):
    (root / "zebras" / "1").mkdir(parents=True)
    backend = Trying("digits/2")
    made = Catalog(root, backend.open)
    made.refresh()
    assert not made.loading
    assert (made.find("digits"), made.find("zebras")) == ("digits 1", "zebras 1")
    assert states(made) == {2: "loading", 1: "available"}
    with pytest.raises(UnavailableError, match=r"version 2 of model 'digits' is still being loaded"):
        made.find("digits", 2)
    backend.trying.clear()
    made.refresh()
    assert states(made) == {2: "available"}


def test_a_model_that_is_being_tried_delays_readiness_for_a_while(root, clock):
    (root / "zebras" / "1").mkdir(parents=True)
    made = Catalog(root, Trying("zebras/1").open)
    made.refresh()
    assert made.loading
    clock[0] += catalogs.TRIED
    made.refresh()
    assert not made.loading
    assert (states(made, "zebras"), made.names()) == ({1: "loading"}, ["digits"])
    with pytest.raises(UnavailableError, match="model 'zebras' is still being loaded"):
        made.find("zebras")
    with pytest.raises(UnknownModelError):
        made.find("zebras", 2)
    # A removed version is not loading.
    (root / "zebras" / "1").rmdir()
    made.refresh()
    assert "zebras" not in made.models()


def test_a_removed_version_serves_while_the_next_one_is_being_tried(root, catalog, clock):
    backend = Trying("digits/3")
    catalog._open = backend.open
    (root / "digits" / "3").mkdir()
    for version in ("1", "2"):
        (root / "digits" / version).rmdir()
    for _ in range(3):
        clock[0] += 60
        catalog.refresh()
        assert catalog.find("digits") == "digits 2"
    # A newer one that can be opened takes its place.
    (root / "digits" / "4").mkdir()
    catalog.refresh()
    assert states(catalog) == {4: "available"}

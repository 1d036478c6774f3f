"""A catalog over folders that stand for versions."""

import pytest

from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog

from .catalogs import opened


@pytest.fixture
def root(tmp_path):
    for version in (1, 2):
        (tmp_path / "digits" / str(version)).mkdir(parents=True)
    return tmp_path


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

"""Versions that would take the endpoint down, or block it forever."""

import os
import shutil
import signal
import threading

import pytest

from serving import manifest
from serving.engine import backends
from serving.engine.backends import InProcessBackend
from serving.engine.catalog import Catalog
from serving.engine.processes import ChildProcesses
from serving.engine.settings import Settings
from serving.errors import ModelError, SmokeTestError
from serving.model import open_version
from tests import tiny_model
from tests.endpoint import eventually


@pytest.fixture
def repository(tmp_path):
    """Two models; the first predictions of the first one never end."""
    root = tmp_path / "models"
    tiny_model.make_endless(tiny_model.write(root / "endless" / "1"))
    tiny_model.write(root / "tiny" / "1")
    return root


def backend(root, seconds):
    return InProcessBackend(Settings(root), None, lambda _: lambda *_: None, ChildProcesses(seconds=seconds))


def test_an_endless_prediction_does_not_stop_other_models(repository):
    made = backend(repository, 4.0)
    catalog = Catalog(repository, made.open)
    catalog.refresh()
    made.children.close()
    assert catalog.names() == ["tiny"]
    assert "crashed, or took more than" in catalog.models()["endless"].failed[1].reason
    # The machine may have been busy.
    assert catalog.models()["endless"].failed[1].pause == 1.0


def test_a_graph_that_crashes_the_runtime_is_refused(repository):
    made = backend(repository, 60.0)
    errors = []

    def open_it():
        try:
            made.open(repository / "endless" / "1")
        except SmokeTestError as error:
            errors.append(str(error))

    thread = threading.Thread(target=open_it)
    thread.start()
    eventually(lambda: made.children._busy)
    os.kill(next(iter(made.children._busy))._process.pid, signal.SIGSEGV)
    thread.join(20)
    assert "crashed" in errors[0]
    # The next version gets a new process; nothing is left of the old one.
    assert made.open(repository / "tiny" / "1").manifest.name == "tiny"
    made.rest()
    assert not made.children._idle


def test_a_version_that_is_replaced_while_it_is_opened_is_not_served(repository, monkeypatch):
    made, version = backend(repository, 60.0), repository / "tiny" / "1"

    def replaced(folder, **options):
        # By another model, whose manifest was not compared with its folder.
        shutil.rmtree(folder)
        return open_version(tiny_model.write(folder, seed=1), **options)

    monkeypatch.setattr(backends, "open_version", replaced)
    with pytest.raises(ModelError, match="was replaced while it was being opened"):
        made.open(version)
    made.children.close()


def test_errors_are_reported_as_from_this_process(repository):
    made = backend(repository, 60.0)
    (repository / "tiny" / "1" / "labels.txt").write_text("other\n")
    catalog = Catalog(repository, made.open)
    with pytest.raises(manifest.ModelError, match=r"labels\.txt is damaged"):
        made.open(repository / "tiny" / "1")
    threading.Timer(0.5, made.interrupt).start()
    # An endpoint that stops does not wait for a smoke test.
    catalog.refresh()
    assert catalog.names() == []

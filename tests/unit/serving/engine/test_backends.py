"""Versions that would take the endpoint down, or block it forever."""

import os
import shutil
import signal
import threading
from unittest.mock import Mock

import pytest

from serving import manifest, package
from serving.engine import backends
from serving.engine.backends import InProcessBackend
from serving.engine.catalog import Catalog
from serving.engine.processes import ChildProcesses, EndedError, TimeLimitError
from serving.engine.settings import Settings
from serving.engine.trials import VersionTrials
from serving.errors import LoadingError, ModelError, SmokeTestError, UnavailableError
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


def backend(root, seconds, patience=None):
    return InProcessBackend(Settings(root), None, lambda _: lambda *_: None, ChildProcesses(seconds=seconds), patience)


def test_an_endless_prediction_does_not_stop_other_models(repository):
    made = backend(repository, 4.0)
    catalog = Catalog(repository, made.open)
    catalog.refresh()
    made.children.close()
    assert catalog.names() == ["tiny"]
    assert "took more than 4 s" in catalog.models()["endless"].failed[1].reason
    # The machine may have been busy.
    assert catalog.models()["endless"].failed[1].pause == 60.0


@pytest.mark.parametrize("error", [EndedError(), TimeLimitError(60.0)])
def test_a_net_of_the_package_that_fails_its_trial_is_not_to_be_exported(repository, monkeypatch, error):
    folder = repository / "tiny" / "1"
    trials = VersionTrials(Mock(**{"call.side_effect": error}))
    for pretrained, advice in ((folder / "other", "Export the model"), (repository, "Install highway-keras")):
        monkeypatch.setattr(package, "pretrained", lambda found=pretrained: found)
        with pytest.raises(SmokeTestError, match=rf"opening .*\. {advice}.* again.*\."):
            trials.run(folder, manifest.read(folder))
    trials.close()


def test_endless_trials_go_on_in_the_background_one_at_a_time(repository):
    shutil.rmtree(repository / "tiny")
    for name in ("next", "third"):
        tiny_model.make_endless(tiny_model.write(repository / name / "1"))
    tiny_model.write(repository / "tiny" / "1")
    made = backend(repository, 600.0, patience=2.0)
    catalog = Catalog(repository, made.open)
    catalog.refresh()
    assert catalog.names() == ["tiny"]
    for name in ("endless", "next", "third"):
        assert [one.state for one in catalog.statuses(name)] == ["loading"]
        with pytest.raises(UnavailableError, match=f"model '{name}' is still being loaded"):
            catalog.find(name)
    # Other versions do not wait for them, nor does a check start another trial.
    tiny_model.write(repository / "tiny" / "2")
    catalog.refresh()
    assert [one.version for one in catalog.statuses("tiny")] == [2]
    eventually(lambda: len(made.children._busy) == 1)
    # Its outcome is taken at the next check; the next trial starts.
    (first,) = made.children._busy
    os.kill(first._process.pid, signal.SIGSEGV)
    eventually(lambda: made.children._busy and first not in made.children._busy)
    catalog.refresh()
    (refused,) = catalog.statuses("endless")
    assert (refused.state, "crashed the process that tried it (SIGSEGV)" in refused.reason) == ("failed", True)
    made.interrupt()
    eventually(lambda: not made.children._busy)


def test_a_version_that_takes_long_is_served_after_its_trial_in_the_background(repository):
    made = backend(repository, 600.0, patience=0.01)
    version = repository / "tiny" / "1"
    with pytest.raises(LoadingError):
        made.open(version)

    def opened():
        try:
            return made.open(version)
        except LoadingError:
            return None

    served = []
    eventually(lambda: served.append(opened()) or served[-1])
    assert served[-1].manifest.name == "tiny"
    made.interrupt()


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

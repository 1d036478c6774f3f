import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines.core.errors import UserError
from pipelines.data import catalog, mnist_5k
from pipelines.data.catalog import find, prepare, unreachable
from pipelines.data.sources import describe, load


@pytest.fixture(autouse=True)
def _few_digits(tmp_path, monkeypatch):
    """Redirects the cache of the user, and reduces mnist_5k to 9 blank digits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(mnist_5k, "read", lambda: (np.zeros((9, 28, 28), "uint8"), np.arange(9)))
    parts = dict(zip(mnist_5k.PER_CLASS, np.split(np.arange(9), 3), strict=True))
    monkeypatch.setattr(mnist_5k, "split", lambda labels: parts)


@pytest.fixture
def sets(tmp_path):
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


@pytest.fixture
def server():
    """A local web server that answers every request with 404."""

    class Nothing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Nothing) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def test_digits_are_prepared_silently_on_first_use(sets, capfd):
    assert describe("mnist_5k", sets).counts["train"] == 3
    assert [path.name for path in sets.iterdir()] == ["mnist_5k"]
    assert capfd.readouterr().out == ""


def test_what_a_killed_process_has_prepared_is_removed(sets):
    left = sets / ".preparing-a"
    left.mkdir()
    (left / "lock").write_text(socket.gethostname())
    prepare("mnist_5k", sets)
    assert [path.name for path in sets.iterdir()] == ["mnist_5k"]


def test_a_read_only_folder_is_left_alone(sets, tmp_path):
    sets.chmod(0o555)
    assert len(load("mnist_5k", "test", sets)) == 3
    assert not list(sets.iterdir())
    assert (tmp_path / "cache" / "highway-keras" / "datasets" / "mnist_5k" / "1.0.0").is_dir()
    assert find("mnist_5k", sets) is not None


def test_a_missing_writable_folder_is_reported(sets, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o555)
    sets.chmod(0o555)
    with pytest.raises(UserError, match=r"'mnist_5k' is not in .* is not writable\. Name a writable folder"):
        prepare("mnist_5k", sets)


def test_without_network_there_is_one_quick_error_and_nothing_is_left(sets, monkeypatch):
    # TFDS's own retries would take 200 s.
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lambda *_, **__: pytest.fail("begun"))
    with pytest.raises(UserError) as error:
        load("cifar10", "train", sets)
    for choice in ("no network", "Use mnist_5k", "highway data prepare cifar10", "--data-dir or TFDS_DATA_DIR"):
        assert choice in str(error.value)
    assert not list(sets.iterdir())


@pytest.mark.parametrize("error", [OSError("no space"), AssertionError("by hand"), tfds.download.DownloadError("404")])
def test_a_preparation_that_fails_leaves_nothing(sets, monkeypatch, error):
    def fail(self, *, download_dir, **_):
        download_dir.mkdir(parents=True)
        (download_dir / "half").write_text("written")
        raise error

    monkeypatch.setattr(catalog, "unreachable", lambda urls: None)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(UserError, match=f"'cifar10' is not in .*cannot be prepared there: {error}"):
        prepare("cifar10", sets)
    assert not list(sets.iterdir())


def test_a_full_disk_is_not_mistaken_for_missing_data(sets, monkeypatch):
    def fail(self, **_):
        raise RuntimeError("Failed to finalize writing; No space left on device")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    # The command line says that the disk is full; see `guarded`.
    with pytest.raises(RuntimeError, match="No space left"):
        prepare("mnist_5k", sets)
    assert not list(sets.iterdir())


def test_an_interrupted_preparation_leaves_nothing(sets, monkeypatch):
    def interrupt(self, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare("mnist_5k", sets)
    assert not list(sets.iterdir())


def test_the_first_of_two_processes_to_finish_wins(sets, monkeypatch):
    download = tfds.core.DatasetBuilder.download_and_prepare

    def overtaken(self, **options):
        download(self, **options)
        monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download)
        prepare("mnist_5k", sets)

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", overtaken)
    assert catalog.is_complete(prepare("mnist_5k", sets))
    assert [path.name for path in sets.iterdir()] == ["mnist_5k"]


def test_an_obstacle_is_reported(sets):
    (sets / "mnist_5k" / "1.0.0").mkdir(parents=True)
    (sets / "mnist_5k" / "1.0.0" / "notes").write_text("mine")
    with pytest.raises(UserError, match=r"1\.0\.0 exists but holds no complete data set"):
        prepare("mnist_5k", sets)
    assert (sets / "mnist_5k" / "1.0.0" / "notes").read_text() == "mine"


def test_a_server_that_answers_anything_is_reachable(server):
    assert unreachable([f"{server}/a", f"{server}/b"]) is None
    assert unreachable([]) is None
    assert unreachable(["ftp://nowhere.invalid/a"]) is None  # Only HTTP servers are checked.


def test_one_server_of_several_is_enough(server):
    assert unreachable(["http://127.0.0.1:1/a", f"{server}/b"]) is None
    assert "does not respond" in unreachable(["http://127.0.0.1:1/a"])


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(catalog, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in unreachable([f"http://127.0.0.1:{silent.getsockname()[1]}/a"])

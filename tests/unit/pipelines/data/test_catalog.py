import tempfile
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.data.catalog import find, is_folder
from pipelines.data.roots import data_root, roots


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """Isolates the test from the data of the user."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_the_folder_named_on_the_command_line_comes_first(tmp_path, monkeypatch):
    assert data_root(None) == tmp_path / "home" / "tensorflow_datasets"
    (tmp_path / "variable").mkdir()
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "variable"))
    assert data_root(None) == tmp_path / "variable"
    assert data_root(tmp_path / "given") == tmp_path / "given"


def test_a_named_folder_must_exist(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"no folder '.*nowhere' \(--data-dir\)"):
        data_root(tmp_path / "nowhere")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"no folder '.*nowhere' \(TFDS_DATA_DIR\)"):
        find("mnist_5k", None)


def test_the_cache_serves_only_a_folder_that_cannot_be_written_to(tmp_path):
    # Otherwise a named folder would stay empty if the cache happens to hold the data.
    (tmp_path / "sets").mkdir()
    assert roots("mnist_5k", tmp_path / "sets") == [tmp_path / "sets"]
    (tmp_path / "sets").chmod(0o555)
    cache = tmp_path / "home" / ".cache" / "highway-keras" / "datasets"
    assert roots("mnist_5k", tmp_path / "sets") == [tmp_path / "sets", cache]
    assert roots("mnist", tmp_path / "sets") == [tmp_path / "sets"]


def test_an_unknown_name_gets_the_nearest(tmp_path):
    with pytest.raises(UserError, match=r"no data set 'cifra10'\. Did you mean 'cifar10'\?"):
        find("cifra10", tmp_path)
    with pytest.raises(UserError, match=r"no data set 'qqqqqqqqqqqq'\. Expected one of TensorFlow Datasets"):
        find("qqqqqqqqqqqq", tmp_path)


@pytest.mark.parametrize("data", ["mnist:9.9.9", "mnist/no_such_config", "mnist:one"])
def test_a_missing_version_or_config_is_reported(tmp_path, data):
    with pytest.raises(UserError, match=f"the data set '{data}' cannot be opened"):
        find(data, tmp_path)


def test_a_lookup_writes_nothing(tmp_path, monkeypatch):
    # Here, TFDS would leave folders behind.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("mnist", "mnist_5k", "mnist:3.0.1"):
        assert find(name, tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_names_with_version_and_paths(digits, monkeypatch):
    folder = digits / "mnist_5k" / "1.0.0"
    monkeypatch.chdir(digits)
    for data in ("mnist_5k", "mnist_5k:1.0.0", str(folder), "./mnist_5k/1.0.0", "mnist_5k/1.0.0"):
        assert Path(find(data, digits).data_dir).resolve() == folder


def test_paths_are_recognized(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "sets" / "mine").mkdir(parents=True)
    for data in ("/data/mine", "./mine", "../mine", "~/mine", "sets/mine", "."):
        assert is_folder(data)
    for data in ("mnist", "mnist:3.0.1", "emnist/letters", "emnist/letters:3.1.0", "cifar10"):
        assert not is_folder(data)


def test_a_folder_without_a_data_set_is_reported(digits):
    with pytest.raises(UserError, match=r"no prepared data set in '.*': dataset_info.json is missing"):
        find(str(digits / "mnist_5k"), None)
    with pytest.raises(UserError, match="no prepared data set in '/no/where'"):
        find("/no/where", None)

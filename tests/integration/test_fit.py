"""Refusals of `highway fit`; the tutorial on own images runs it (tests/e2e/test_tutorials.py)."""

import pytest

from pipelines.verbs.cli import main


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(("words", "message"), [(["mnist"], "`highway train`"), (["nowhere"], "no images of your own")])
def test_other_data_are_refused(home, capsys, words, message):
    assert main(["fit", *words]) == 2
    assert message in capsys.readouterr().err

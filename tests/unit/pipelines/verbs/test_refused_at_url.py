"""Commands that are refused leave what is at their URL, and its owner, alone; on fsspec's file system in memory."""

import pytest

from pipelines.core import run as runs
from pipelines.core.errors import UserError
from pipelines.core.ownership import OWNER
from pipelines.verbs.cli import main
from tests.toy_data import RECORD, toy_config
from tests.unit.pipelines.core.runs_in_memory import contents, place


@pytest.fixture
def live():
    """The URL of a folder that another command writes."""
    url = place()
    url.with_name(OWNER.format(url.name)).write_bytes(b"process 1 on b")
    return url


def refused(url, words):
    """Runs a command that must be refused, and checks that it has changed nothing."""
    before = {str(one.url): one.url.read_bytes() for one in url.parent.files()}
    assert main([*words, str(url)]) == 2
    assert {str(one.url): one.url.read_bytes() for one in url.parent.files()} == before


@pytest.mark.parametrize(
    ("words", "error"),
    [(["tune", "demo"], "exists and is not a search folder"), (["reproduce", "bias"], "exists and holds no study")],
)
def test_a_folder_of_something_else(live, words, error, capsys):
    (live / "notes.txt").write_bytes(b"")
    refused(live, [*words, "--to"])
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("words", [["tune", "demo"], ["reproduce", "bias"]])
def test_a_cluster_that_does_not_answer(live, words, monkeypatch, capsys):
    def refuse(address):
        raise UserError("no cluster answers")

    monkeypatch.setattr("pipelines.core.cluster_executor.connect", refuse)
    monkeypatch.setattr("pipelines.core.frameworks.load", lambda *_: None)
    refused(live, [*words, "--cluster", "10.0.0.1:6379", "--to"])
    assert "no cluster answers" in capsys.readouterr().err


def test_a_run_of_another_version(live, tmp_path, capsys):
    record = RECORD.model_copy(update={"versions": {"keras": "0"}})
    run = runs.create(tmp_path / "x", toy_config(), record).path
    for name in ("config.json", "run.json"):
        (live / name).put(run / name)
    refused(live, ["train", "--resume"])
    assert f"{live} was started with keras 0" in capsys.readouterr().err
    assert {*contents(live)} == {"config.json", "run.json"}

"""Failures that a catalog survives: versions, folders and repositories that cannot be read."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from serving import release
from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog
from serving.engine.status import error_reason
from serving.errors import (
    ModelError,
    RefusedError,
    TrialTimeoutError,
    UnavailableError,
    UnknownModelError,
)

from .catalogs import opened, states


def test_a_bad_version_is_reported_and_the_previous_one_stays_in_service(root, catalog):
    bad = root / "digits" / "3"
    bad.mkdir()
    (bad / "bad").touch()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {3: "failed", 2: "available"}
    (failed,) = (status for status in catalog.models()["digits"].statuses() if status.state == "failed")
    assert "3 is damaged" in failed.reason


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


def test_an_unavailable_version_is_tried_at_every_check_and_logged_once(root, catalog, caplog):
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


def test_a_model_whose_versions_are_all_unavailable(root):
    def away(folder):
        raise UnavailableError("no server")

    made = Catalog(root, away)
    made.refresh()
    with pytest.raises(UnavailableError, match="no server"):
        made.find("digits")
    with pytest.raises(UnknownModelError):
        made.find("digits", 9)


def test_a_model_whose_only_version_is_bad_serves_none(root):
    (root / "cats" / "1").mkdir(parents=True)
    (root / "cats" / "1" / "bad").touch()
    made = Catalog(root, opened)
    made.refresh()
    assert made.names() == ["digits"]
    for version in (None, 1):
        with pytest.raises(RefusedError, match=r"is not served. Served versions: none. Version 1 was refused: "):
            made.find("cats", version)
    with pytest.raises(UnknownModelError, match=r"version 2 of model .* is not served"):
        made.find("cats", 2)
    assert [one.state for one in made.statuses("cats")] == ["failed"]
    with pytest.raises(UnknownModelError, match=r"version 2 of model .* is not served"):
        made.statuses("cats", 2)


@pytest.mark.parametrize("number", [2**63, 20261128134127123456])
def test_a_number_that_is_too_large_is_refused_and_the_version_before_it_serves(root, catalog, caplog, number):
    catalog._open = lambda folder: pytest.fail(f"{folder} is no version")
    (root / "digits" / str(number)).mkdir()
    (root / "cats" / str(number)).mkdir(parents=True)
    for _ in range(3):
        catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert states(catalog) == {number: "failed", 2: "available"}
    assert catalog.models()["cats"].problem == ""
    with pytest.raises(RefusedError, match=f"Version {number} was refused: a version's number is at most {2**63 - 1}"):
        catalog.find("cats")
    assert [record.getMessage() for record in caplog.records] == ["version refused"] * 2
    (root / "digits" / str(number)).rmdir()
    (root / "cats" / str(number)).rmdir()
    catalog.refresh()
    assert states(catalog) == {2: "available"}
    assert "cats" not in catalog.models()


@pytest.mark.parametrize("target", ["away", "digits"])
def test_a_model_stays_while_its_link_leads_nowhere(root, clock, target):
    (root / "digits").rename(root / ".store")
    (root / "digits").symlink_to(root / ".store")
    catalog = Catalog(root, opened)
    catalog.refresh()
    (root / "digits").unlink()
    # Nowhere, or to itself.
    (root / "digits").symlink_to(root / target)
    for _ in range(3):
        clock[0] += 60.0
        catalog.refresh()
        assert catalog.find("digits") == "digits 2"
    assert "the link leads nowhere. Loaded versions stay in service" in catalog.models()["digits"].problem
    (root / "digits").unlink()
    for _ in range(2):
        clock[0] += 60.0
        catalog.refresh()
    assert catalog.names() == []


def test_a_folder_whose_name_is_not_text_is_logged_once(root, catalog, caplog):
    folder = root / os.fsdecode(b"caf\xe9")
    try:
        (folder / "1").mkdir(parents=True)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    for _ in range(3):
        catalog.refresh()
    assert catalog.names() == ["digits"]
    (logged,) = caplog.records
    assert (logged.getMessage(), logged.folder) == ("model folder ignored", rf"{root}/caf\udce9")
    assert "not UTF-8" in logged.why
    folder.rename(root / "coffee")
    catalog.refresh()
    assert catalog.names() == ["coffee", "digits"]
    assert sorted(catalog.models()) == ["coffee", "digits"]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RecursionError("too deep"), RuntimeError("ONNX"), KeyError("x"), OSError(5, "I/O error")],
)
def test_an_error_affects_only_its_own_version(root, clock, caplog, error):
    (root / "zebras" / "1").mkdir(parents=True)
    broken = True

    def open_version(folder):
        if broken and folder.parent.name == "digits" and folder.name == "2":
            raise error
        return opened(folder)

    made = Catalog(root, open_version)
    for _ in range(5):
        made.refresh()
    assert (made.find("zebras"), made.find("digits")) == ("zebras 1", "digits 1")
    assert type(error).__name__ in made.models()["digits"].failed[2].reason
    (logged,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert (logged.getMessage(), logged.exc_info[1]) == ("version refused", error)
    # The files may not be to blame, so it is tried again after a while.
    broken = False
    made.refresh()
    assert made.find("digits") == "digits 1"
    clock[0] += 1
    made.refresh()
    assert made.find("digits") == "digits 2"


def test_a_reason_can_be_sent_whatever_a_file_contains():
    assert error_reason(RuntimeError("ONNX: \ud800")).encode().endswith(rb"ONNX: \ud800")


@pytest.mark.parametrize(
    ("error", "gaps", "seconds"),
    [
        (MemoryError(), [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60], 1),
        (TrialTimeoutError("took more than 60 s"), [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600], 60),
    ],
)
def test_failing_versions_are_retried_ever_more_rarely(root, clock, error, gaps, seconds):
    tried = []

    def fail(folder):
        tried.append(clock[0])
        raise error

    made = Catalog(root / "digits", fail)
    (root / "digits" / "only" / "1").mkdir(parents=True)
    while len(tried) <= len(gaps):
        made.refresh()
        clock[0] += seconds
    assert [later - earlier for earlier, later in pairwise(tried)] == gaps


def test_a_version_that_is_a_link_to_nowhere_is_refused(root, caplog):
    (root / "digits" / "9").symlink_to(root / "away")
    (root / "zebras").mkdir()
    (root / "zebras" / "1").symlink_to(root / "nowhere")
    made = Catalog(root, opened)
    for _ in range(3):
        made.refresh()
    assert made.find("digits") == "digits 2"
    assert states(made) == {9: "failed", 2: "available"}
    with pytest.raises(RefusedError, match=r"Version 1 was refused: zebras/1 is a link that leads nowhere\. Mount"):
        made.find("zebras")
    assert [record.getMessage() for record in caplog.records] == ["version refused"] * 2
    # It is there again, and gone once more.
    (root / "away").mkdir()
    (root / "away" / "manifest.json").touch()
    made.refresh()
    assert made.find("digits") == "digits 9"
    (root / "away").rename(root / ".away")
    for _ in range(2):
        made.refresh()
        assert made.find("digits") == "digits 9"
    assert "leads nowhere" in made.statuses("digits", 9)[0].reason


def test_a_model_that_is_a_link_to_nowhere_is_reported(root, caplog):
    (root / "zebras").symlink_to(root / "nowhere")
    made = Catalog(root, opened)
    for _ in range(3):
        made.refresh()
    assert (made.names(), made.loading) == (["digits"], False)
    assert (
        "zebras cannot be read: FileNotFoundError: [Errno 2] the link leads nowhere" in made.models()["zebras"].problem
    )
    with pytest.raises(RefusedError, match="the link leads nowhere"):
        made.find("zebras")
    assert [record.getMessage() for record in caplog.records] == ["model folder has a problem"]
    (root / "zebras").unlink()
    made.refresh()
    assert list(made.models()) == ["digits"]


def test_models_stay_in_service_when_the_repository_vanishes(root, catalog, clock, caplog):
    away = root.rename(root.with_name("away"))
    for _ in range(3):
        clock[0] += 1000
        catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert "cannot be read: No such file" in catalog.problem
    # An empty folder is left where the volume was mounted.
    root.mkdir()
    catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert "has been replaced by an empty folder" in catalog.problem
    assert [record.getMessage() for record in caplog.records] == ["repository unavailable"] * 2
    root.rmdir()
    (away / "digits" / "3").mkdir()
    away.rename(root)
    catalog.refresh()
    assert (catalog.find("digits"), catalog.problem) == ("digits 3", "")


def test_a_model_stays_in_service_when_an_empty_folder_replaces_its_own(root, catalog, clock):
    away = (root / "digits").rename(root.with_name("away"))
    # The old folder was moved, not deleted: otherwise the new one could reuse its inode.
    (root / "digits").mkdir()
    for _ in range(2):
        clock[0] += 1000
        catalog.refresh()
    assert catalog.find("digits") == "digits 2"
    assert [status.reason for status in catalog.models()["digits"].statuses()] == [catalog.models()["digits"].problem]
    (root / "digits").rmdir()
    away.rename(root / "digits")
    catalog.refresh()
    assert (catalog.find("digits"), catalog.models()["digits"].problem) == ("digits 2", "")


def test_an_unreadable_folder_does_not_affect_others(root, catalog, monkeypatch, caplog):
    listed = catalogs.repository.listed

    def fail(folder):
        if folder.name == "digits":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(catalogs.repository, "listed", fail)
    (root / "zebras" / "1").mkdir(parents=True)
    for _ in range(3):
        catalog.refresh()
    assert catalog.names() == ["digits", "zebras"]
    assert "Permission denied" in catalog.models()["digits"].problem
    assert [record.getMessage() for record in caplog.records] == ["model folder has a problem"]


def test_a_damaged_release_is_logged_once(root, catalog, caplog):
    (root / "digits" / release.NAME).write_text("{")
    for _ in range(3):
        catalog.refresh()
    assert len(caplog.records) == 1
    assert "release.json is damaged" in catalog.models()["digits"].problem


def test_clients_do_not_learn_where_the_repository_is(root, catalog, clock, caplog):
    """Breaks a version, a release, a model and the repository in turn, and collects what clients and the log say."""
    (root / "digits" / "3").mkdir()
    (root / "digits" / "3" / "bad").touch()
    (root / "digits" / release.NAME).write_text("{")
    catalog.refresh()
    state = catalog.models()["digits"]
    messages = [state.problem, *(status.reason for status in state.statuses())]
    with pytest.raises(RefusedError) as refused:
        catalog.find("digits", 3)
    messages.append(str(refused.value))
    (root / "digits").rename(root / ".away")
    catalog.refresh()
    messages.append(catalog.models()["digits"].problem)
    (root / "digits").symlink_to(root / "nowhere")
    catalog.refresh()
    messages.append(catalog.models()["digits"].problem)
    root.rename(root.with_name("away"))
    catalog.refresh()
    messages.append(catalog.problem)
    assert all(messages)
    assert not [one for one in messages if str(root.parent) in one]
    assert "digits/3 is damaged" in refused.value.args[0]
    # The log names the places in full, and each problem once.
    catalog.refresh()
    assert [str(root) in str(vars(record)) for record in caplog.records] == [True] * 5


def test_only_paths_of_the_repository_are_shortened(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "digits" / "1").mkdir(parents=True)
    why = "models/digits/1, not /v1/models/digits, s3://a/models/digits or ../models/digits"

    def fail(_):
        raise ModelError(why)

    made = Catalog(Path("models"), fail)
    made.refresh()
    (status,) = made.statuses("digits")
    assert status.reason == why.removeprefix("models/")

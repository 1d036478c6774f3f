"""Plans in files, of any kind; `test_search_plan.py` and `test_study_plan.py` test the two kinds."""

import errno
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen, read
from pipelines.core.plan_file import PlanFile, changes


class Inner(Frozen):
    """A part of a plan."""

    size: int = 1


class Old(Frozen):
    """A plan with a field that later versions lack."""

    name: str = "a"
    gone: int = 3
    inner: Inner = Inner()


class New(Frozen):
    """A plan with a field that earlier versions lack."""

    name: str = "a"
    inner: Inner = Inner()
    added: int = 4


def _difference(stored, requested):
    return ", ".join(name for name, *_ in changes(stored, requested))


def _start(file, plan, folder):
    file.keep(plan, folder)
    with file.locked(folder):
        pass


def test_changes_are_named_in_full_and_fields_of_older_versions_do_not_count():
    assert list(changes(New(), New(inner=Inner(size=2)))) == [("inner.size", 1, 2)]
    assert list(changes(Old(), New())) == [("added", None, 4)]
    assert list(changes(New(), New())) == []


def test_braces_in_the_name_of_a_folder_are_kept_in_messages(tmp_path):
    file = PlanFile("plan.json", New, lambda _, new: new.name, "{folder}: {difference}", "{folder}", "{folder}", ())
    folder = tmp_path / "{name}"
    file.keep(New(), folder)
    with pytest.raises(UserError) as caught:
        file.keep(New(name="{b}"), folder)
    assert str(caught.value) == f"{folder}: {{b}}"


def test_work_that_has_begun_keeps_its_folder(tmp_path):
    file = PlanFile("plan.json", New, lambda *_: "", "", "", "", before_work=("logs",))
    folder: Path = tmp_path / "a"
    file.keep(New(), folder)
    (folder / "logs").mkdir()
    (folder / "runs").mkdir()
    file.forget(folder)
    assert [path.name for path in folder.iterdir()] == ["runs"]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_new_plan_is_kept_whole(tmp_path, monkeypatch, links):
    def refused(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refused)
    file = PlanFile("plan.json", New, lambda *_: "", "", "", "", ())
    file.keep(New(name="b"), tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["plan.json"]
    assert read(tmp_path / "a" / "plan.json", New) == New(name="b")


@pytest.mark.parametrize(("name", "refusal"), [("a", "busy"), ("b", "another")])
def test_of_two_commands_that_start_at_the_same_time_one_gets_the_folder(tmp_path, monkeypatch, name, refusal):
    file = PlanFile("plan.json", New, _difference, "another", "foreign", "busy", ())
    folder, make = tmp_path / "a", tempfile.mkstemp

    def overtaken(**options):
        """Lets the other command keep its plan once this one is writing its own."""
        monkeypatch.undo()
        made = make(**options)
        file.keep(New(), folder)
        other.enter_context(file.locked(folder))
        return made

    monkeypatch.setattr(tempfile, "mkstemp", overtaken)
    with ExitStack() as other, pytest.raises(UserError, match=refusal):
        _start(file, New(name=name), folder)
    assert read(folder / "plan.json", New) == New()


def test_a_plan_that_was_being_written_by_a_killed_process_is_no_foreign_file(tmp_path):
    file = PlanFile("plan.json", New, lambda *_: "", "another", "foreign", "busy", ())
    (tmp_path / ".plan-abcdefgh.json").write_text("")
    file.keep(New(), tmp_path)
    assert read(tmp_path / "plan.json", New) == New()

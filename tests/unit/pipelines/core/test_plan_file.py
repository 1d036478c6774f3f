"""Plans in files, of any kind; `test_search_plan.py` and `test_study_plan.py` test the two kinds."""

from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
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

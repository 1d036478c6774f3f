import json

import pytest

from pipelines.core.errors import UserError
from pipelines.studies.run.study_plan import STUDY_FILE, StudyPlan, run_folder
from tests.toy_data import toy_config


def plan(**changes):
    fields = {"study": "toy", "budget": 1.0, "backend": "tensorflow", "arms": {"a": toy_config(), "b": toy_config()}}
    return StudyPlan(**{**fields, **changes})


def test_a_plan_is_kept_and_found_again(tmp_path):
    STUDY_FILE.keep(plan(), tmp_path / "a")
    before = (tmp_path / "a" / STUDY_FILE.name).read_bytes()
    STUDY_FILE.keep(plan(), tmp_path / "a")
    assert (tmp_path / "a" / STUDY_FILE.name).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": "other"}, "its study was toy and is other"),
        ({"schedule": "short"}, "its schedule was full and is short"),
        ({"budget": 0.1}, r"its budget was 1\.0 and is 0\.1"),
        ({"backend": "jax"}, "its backend was tensorflow and is jax"),
        ({"arms": {"a": toy_config()}}, "only one of them has the arm b"),
        ({"arms": {"a": toy_config(), "b": toy_config(epochs=9)}}, "epochs of b was 2 and is 9"),
    ],
)
def test_another_study_in_the_same_folder_is_refused_by_what_differs(tmp_path, changes, message):
    STUDY_FILE.keep(plan(), tmp_path / "a")
    with pytest.raises(UserError, match=rf"the study in .* is another one: {message}\. .*--to DIR"):
        STUDY_FILE.keep(plan(**changes), tmp_path / "a")


def test_a_study_that_has_gained_arms_is_the_same(tmp_path):
    STUDY_FILE.keep(plan(arms={"a": toy_config()}), tmp_path)
    STUDY_FILE.keep(plan(), tmp_path)
    with pytest.raises(UserError, match="epochs of a was 2 and is 9"):
        STUDY_FILE.keep(plan(arms={"a": toy_config(epochs=9), "b": toy_config()}), tmp_path)


def test_a_plan_older_than_short_schedules_is_of_a_full_one(tmp_path):
    fields = plan().model_dump(mode="json", exclude={"schedule"})
    (tmp_path / STUDY_FILE.name).write_text(json.dumps(fields))
    STUDY_FILE.keep(plan(schedule="full"), tmp_path)


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    STUDY_FILE.keep(plan(), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds no study"):
        STUDY_FILE.keep(plan(), tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ["", "{", "{}", '{"study": 3}'])
def test_a_damaged_plan_is_reported_by_its_file(tmp_path, text):
    (tmp_path / STUDY_FILE.name).write_text(text)
    with pytest.raises(UserError, match=r"study\.json is damaged or of another version"):
        STUDY_FILE.keep(plan(), tmp_path)


def test_one_process_at_a_time(tmp_path):
    STUDY_FILE.keep(plan(), tmp_path)
    again = pytest.raises(UserError, match="another process reproduces a study")
    with STUDY_FILE.locked(tmp_path), again, STUDY_FILE.locked(tmp_path):
        pass
    with STUDY_FILE.locked(tmp_path):
        pass


def test_a_study_that_never_began_leaves_the_folder_free(tmp_path):
    STUDY_FILE.keep(plan(), tmp_path / "a")
    (tmp_path / "a" / "logs").mkdir()
    STUDY_FILE.forget(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_each_run_has_its_own_folder(tmp_path):
    assert run_folder(tmp_path, "plain-5", 2) == tmp_path / "runs" / "plain-5-seed-2"
